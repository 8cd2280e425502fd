"""From a configuration to an assembled run: keys, padding, inclusion bits, both parties, and every refusal."""

from privfed.setup.method_settings import MethodTable, display_name, method_settings, our_variant

__all__ = ["MethodTable", "display_name", "method_settings", "our_variant"]
