"""What a command really used of its quotas."""

from __future__ import annotations

import os


def used(quota: str, units: int) -> bool:
    """Tells a quota of this action how much it really used: tokens, or money.

    Called by a command that rota runs, as often as it likes: uses of the same quota are added
    up. When the command ends, they count in the quota's window instead of what the action
    expected to use.

    Returns False outside of an action with quotas, where there is nobody to tell.
    """
    if not quota or any(c.isspace() for c in quota):
        raise ValueError(f"{quota!r} is not the name of a quota")
    if isinstance(units, bool) or not isinstance(units, int) or units < 0:
        raise ValueError(f"units must be a whole number of at least 0, not {units!r}")
    path = os.environ.get("ROTA_USAGE_FILE")
    if not path:
        return False
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{quota} {units}\n")
    return True
