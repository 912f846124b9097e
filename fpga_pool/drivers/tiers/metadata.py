"""What a domain's metadata say of its tier: the wish of its owner, and how it was before we put it into a tier."""

#: The pool's own word on a guest that Nova did not make: an element of the domain's metadata.
WISH_URI = "urn:fpga-pool:guest:1"
#: The tier driver's own element, there from before the first change of a guest until after the last is given back.
PLACED_URI = "urn:fpga-pool:placed:1"
#: The element of a guest that is a process of a gang: it belongs to the runner, and to no other driver.
PROCESS_URI = "urn:fpga-pool:process:1"


def wish(tier: str) -> str:
    """Return the element that asks for a tier, for `<metadata>` of a domain or for `virDomainSetMetadata`."""
    return f'<fpga_pool:guest xmlns:fpga_pool="{WISH_URI}" tier="{tier}"/>'
