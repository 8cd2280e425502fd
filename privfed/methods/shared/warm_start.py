"""Where other methods may start: public initial parameters from what `private-gram` released, for nothing more.

`private-gram` publishes weights W over the head of the catalogue, W = Sigma (Sigma + I / B)^-1, and a device predicts
the rest of its history x from y = D^-a (x - |x| pi) as D^a W y, to which |x| pi is added. With the leading eigenpairs
(l, v) of W that is a linear autoencoder of rank d,

    z = sum over own items i of r_i,   r = D^-a v sqrt(l) less its mean under pi,   score_j = |x| pi_j + p_j z,
    p = D^a v sqrt(l),

exactly, but for the rank and for min(1, |x| pi). So the encoder of an autoencoder can start at r and its decoder at p,
and a table of item vectors at v sqrt(l), read on both sides, with popularity as the item bias. Everything here is a
pure function of a public message: it sees no data, and as post-processing it costs no privacy beyond that message's.

Logits are log popularity + strength p_j z / sqrt(|x|): popularity is a probability there, and a product of vectors
moves it by so much. The strength was chosen once, on the validation items of MovieLens-100K under another seed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from privfed.compute.linear_algebra import eigenpairs_of
from privfed.federation import Message
from privfed.methods.shared.popular_head import HEAD, ORDER, SCALE, SHARES, WEIGHTS

Parameters = dict[str, Tensor]

STRENGTH = 30.0
"""Weight of a product of two item vectors relative to log popularity, for rows of unit length."""
_NARROW = -3.0
"""Log variance that latent vectors start with, where factors make their means: noise that leaves the means visible."""


class NoStartError(ValueError):
    """Parameters are not of a shape that factors can start."""


@dataclass(frozen=True, slots=True, eq=False)
class GramFactors:
    """The leading factors of released weights; all rows outside the head are zero.

    Attributes:
        reading: r, what an own item adds to a latent vector.
        predicting: p, what a latent vector adds to the score of an item.
        vectors: v sqrt(l), less its mean under popularity: one table for both.
        log_popularity: logarithm of every item's share of all interactions; outside the head, where only the order is
            known, it falls as one over the rank.
        head: codes of the items that have factors.
    """

    reading: Float[Tensor, "items rank"]
    predicting: Float[Tensor, "items rank"]
    vectors: Float[Tensor, "items rank"]
    log_popularity: Float[Tensor, " items"]
    head: Int64[Tensor, " side"]

    @classmethod
    def from_message(cls, message: Message, rank: int) -> "GramFactors":
        """The factors of a message of `private-gram`.

        Columns come by descending eigenvalue, so a prefix of them is the best of its width; signs are such that the
        largest entry of an eigenvector is positive. Where fewer eigenvalues are positive, the columns left are zero.

        Args:
            message: what the server of `private-gram` publishes after its round.
            rank: number of columns.

        Raises:
            NoStartError: the message is of another method, or the rank is below 1.
        """
        missing = [name for name in (HEAD, SHARES, SCALE, WEIGHTS, ORDER) if name not in message.shared]
        if missing or rank < 1:
            raise NoStartError(
                f"factors of rank {rank} were asked of a message with {sorted(message.shared)}: give the public "
                f"message of private-gram and a rank of at least 1"
            )
        head, order = message.shared[HEAD], message.shared[ORDER]
        shares, scale = message.shared[SHARES].double(), message.shared[SCALE].double()
        roots = _roots(message.shared[WEIGHTS].double(), rank)

        def placed(rows: Float64[Tensor, "side rank"]) -> Float[Tensor, "items rank"]:
            table = torch.zeros(len(order), rank)
            table[head] = rows.float()
            return table

        damped = roots * scale.unsqueeze(1)
        return cls(
            reading=placed(damped - shares @ damped),
            predicting=placed(roots / scale.unsqueeze(1)),
            vectors=placed(roots - shares @ roots),
            log_popularity=_log_popularity(head, shares, order),
            head=head,
        )

    @property
    def rank(self) -> int:
        """Number of columns."""
        return self.vectors.shape[1]


def autoencoder(parameters: Mapping[str, Tensor], factors: GramFactors, strength: float = STRENGTH) -> Parameters:
    """FedVAE and FedDAE of one layer: the encoder reads, the decoder predicts, its bias is log popularity.

    Latent numbers beyond the rank keep their random start on the side of the encoder and say nothing at first.

    Args:
        parameters: the server's, of an autoencoder without hidden layers.
        factors: where to start.
        strength: weight of a latent vector relative to log popularity; both layers take its root.

    Raises:
        NoStartError: there are hidden layers, more factors than latent numbers, or another catalogue.
    """
    names = ("encoder.0.weight", "encoder.0.bias", "decoder.0.weight", "decoder.0.bias")
    if any(name not in parameters for name in names) or "decoder.1.weight" in parameters:
        raise NoStartError(f"an autoencoder of one layer was expected, and parameters are {sorted(parameters)}")
    weight, bias, decoder, _ = (parameters[name].clone() for name in names)
    _fits(factors, decoder, "latent numbers")
    latent, rank = decoder.shape[1], factors.rank
    weight[:, :rank], weight[:, latent:] = factors.reading * math.sqrt(strength), 0
    bias[:rank], bias[latent:] = 0, _NARROW
    decoder[:] = 0
    decoder[:, :rank] = factors.predicting * math.sqrt(strength)
    popular = factors.log_popularity - factors.log_popularity.mean()
    return {**parameters, **dict(zip(names, (weight, bias, decoder, popular), strict=True))}


def nested_tables(
    parameters: Mapping[str, Tensor], factors: GramFactors, negatives: int, strength: float = STRENGTH
) -> Parameters:
    """HeteFedRec with inner products and an item bias: every table is a prefix of the factors, and heads start silent.

    The bias is the log odds of a positive against the negatives drawn for it, by popularity alone.

    Args:
        parameters: the server's: tables `items.<group>`, the bias, and heads `head.<group>.<weight>`.
        factors: where to start, as wide as the widest table; narrower tables are their first columns.
        negatives: drawn uniformly per positive.
        strength: what a product of two vectors weighs.

    Raises:
        NoStartError: no shared item bias, a table of another catalogue, or one that is wider than the rank.
    """
    tables = [name for name in parameters if name.startswith("items.")]
    if "bias" not in parameters or not tables:
        raise NoStartError(f"item tables and a shared item bias were expected, and parameters are {sorted(parameters)}")
    out = dict(parameters)
    for name in tables:
        width = parameters[name].shape[1]
        if len(parameters[name]) != len(factors.vectors) or width > factors.rank:
            raise NoStartError(
                f"{name} has shape {tuple(parameters[name].shape)}, and factors {tuple(factors.vectors.shape)}: give "
                f"factors of the same catalogue, as wide as the widest table"
            )
        out[name] = factors.vectors[:, :width] * math.sqrt(strength)
    odds = factors.log_popularity + math.log(len(factors.log_popularity) / negatives)
    return out | {"bias": odds.unsqueeze(1)} | _silent(parameters)


def neural_factorisation(
    parameters: Mapping[str, Tensor], factors: GramFactors, strength: float = STRENGTH
) -> Parameters:
    """FAIR for ranking: products of user rows with factors, and a perceptron that passes popularity through.

    User rows are the devices' own: near zero they leave popularity alone, and local training finds them. A device of a
    tier receives the projection of these tables into its subspace, as of any others.

    Args:
        parameters: the server's: `items.gmf`, `items.mlp`, layers of one hidden layer, `predict.w`.
        factors: where to start.
        strength: of products; the table takes its root.

    Raises:
        NoStartError: no such tables, deeper layers, more factors than columns, or another catalogue.
    """
    names = ("items.gmf", "items.mlp", "mlp.W0", "mlp.b0", "predict.w")
    if any(name not in parameters for name in names) or "mlp.W1" in parameters:
        raise NoStartError(f"a ranking NeuMF of one hidden layer was expected, and parameters are {sorted(parameters)}")
    gmf, mlp, first, bias, last = (parameters[name].clone() for name in names)
    _fits(factors, gmf, "columns of its tables")
    width = gmf.shape[1]
    gmf[:] = 0
    gmf[:, : factors.rank] = factors.vectors * math.sqrt(strength)
    mlp[:, 0] = factors.log_popularity - factors.log_popularity.min()
    first[:, 0], bias[0] = 0, 0
    first[width, 0] = 1
    last[:] = 0
    last[:width], last[width] = 1, 1
    return {**parameters, **dict(zip(names, (gmf, mlp, first, bias, last), strict=True))}


def one_table(items: Float[Tensor, "items dim"], factors: GramFactors) -> Float[Tensor, "items dim"]:
    """GPFedRec, PFedRec and FedMF: log popularity and factors side by side, each as large as a drawn column.

    Private heads find out what the columns mean. A column of factors is scaled over the head, the first over all items.

    Args:
        items: the server's table, whose size says how large entries are.
        factors: where to start, one column less than the table or fewer.

    Raises:
        NoStartError: another catalogue, or too small a layer for the factors and popularity.
    """
    _fits(factors, items[:, 1:], "columns beside popularity")
    table, usual = torch.zeros_like(items), float(items.std())
    popular = factors.log_popularity - factors.log_popularity.mean()
    table[:, 0] = popular * (usual / popular.std())
    if len(factors.head):
        sizes = factors.vectors[factors.head].square().mean(0).sqrt()
        table[:, 1 : 1 + factors.rank] = factors.vectors * (
            usual / sizes.max().clamp(min=torch.finfo(torch.float32).tiny)
        )
    return table


def _fits(factors: GramFactors, table: Float[Tensor, "items width"], what: str) -> None:
    if len(table) != len(factors.vectors) or table.shape[1] < factors.rank:
        raise NoStartError(
            f"factors of {len(factors.vectors)} items and rank {factors.rank} do not fit {len(table)} items and "
            f"{table.shape[1]} {what}: use the same catalogue and a rank of at most that"
        )


def _roots(weights: Float64[Tensor, "side side"], rank: int) -> Float64[Tensor, "side rank"]:
    """Directions v sqrt(l) of the largest eigenvalues of the symmetric part, zeros where they are not positive."""
    roots = torch.zeros(len(weights), rank, dtype=torch.float64)
    if not len(weights):
        return roots
    values, vectors = eigenpairs_of((weights + weights.T) / 2)
    values, vectors = values.flip(0)[:rank].clamp(min=0), vectors.flip(1)[:, :rank]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    roots[:, : len(values)] = vectors * largest.sign() * values.sqrt()
    return roots


def _log_popularity(
    head: Int64[Tensor, " side"], shares: Float64[Tensor, " side"], order: Float[Tensor, " items"]
) -> Float[Tensor, " items"]:
    """Shares on the head; below it, 1 / rank from its least popular item on; of sum 1."""
    places = order.argsort(descending=True, stable=True)
    rank = torch.empty(len(order), dtype=torch.float64)
    rank[places] = torch.arange(1, len(order) + 1, dtype=torch.float64)
    least = float(shares.min()) * len(head) if len(head) else 1.0
    popularity = least / rank
    popularity[head] = shares
    return (popularity / popularity.sum()).log().float()


def _silent(parameters: Mapping[str, Tensor]) -> Parameters:
    """The last layer of every head, zero."""
    layers = [name for name in parameters if name.startswith("head.")]
    deepest = {name.rsplit(".", 1)[0]: 0 for name in layers}
    for name in layers:
        head, weight = name.rsplit(".", 1)
        deepest[head] = max(deepest[head], int(weight[1:]))
    last = [f"{head}.{kind}{depth}" for head, depth in deepest.items() for kind in ("W", "b")]
    return {name: torch.zeros_like(parameters[name]) for name in last}
