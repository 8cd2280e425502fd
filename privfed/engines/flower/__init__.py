"""Flower as an engine: the same nodes, messages and guards, carried by a SuperLink and SuperNodes.

    server_app, client_app    the two sides of the app that Flower ships; they wire what is installed here
    FlowerTransport           requests and replies over Flower's Grid
    NodeService               a node as a process of its own, behind a socket
    Gateway, check_strangers  what of a SuperLink the network may reach, and the proof of it
    make_keys, Trial          certificates, keys and processes of a trial on one machine

Needs the extra `flower`: pip install 'privfed[flower]'. Nothing else of privfed imports Flower.
"""
