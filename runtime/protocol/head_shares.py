"""Whether the ranks of a stage can share a model's heads: one rule for stages and for the web."""


def why_not_shared(*, heads: int, kv_heads: int, ranks: int) -> str:
    """What is wrong and what would be right; empty when every rank gets whole heads.

    A rank gets as many query heads as any other. KV heads are dealt out, or, where there are fewer
    than ranks, each is held by as many ranks as any other.
    """
    if heads % ranks == 0 and (kv_heads % ranks == 0 or ranks % kv_heads == 0):
        return ""
    return (
        f"{heads} query heads and {kv_heads} KV heads cannot be dealt to {ranks} ranks; "
        "choose a degree that divides the query heads and divides, or is a multiple of, the "
        "KV heads"
    )
