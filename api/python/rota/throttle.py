"""What a command says of the provider of its quotas."""

from __future__ import annotations

import os


def throttled(retry_after: float | None = None) -> bool:
    """Tells the quotas of this action that their provider refused calls for their rate.

    Called by a command that rota runs. Adaptive quotas take it into account when the command
    ends. The last call counts.

    retry_after: seconds that the provider asked to wait; None: it did not say.
    Returns False outside of an action with quotas, where there is nobody to tell.
    """
    path = os.environ.get("ROTA_THROTTLE_FILE")
    if not path:
        return False
    with open(path, "w", encoding="utf-8") as file:
        file.write("refused\n" if retry_after is None else f"{retry_after:.3f}\n")
    return True
