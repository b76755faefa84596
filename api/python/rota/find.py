"""Finding actions and trajectories, and adding up what they took."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

from .background import timestamp
from .calls import Calls
from .names import names_checked
from .spec import Action

_PAGE = 1000


@names_checked
class Find(Calls):
    """The methods of Client that list."""

    def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        since_s: float | None = None,
        states: Sequence[str] = (),
        name: str = "",
        class_: str = "",
        node: str = "",
        trajectory: int = 0,
        limit: int = 1000,
    ) -> List[Action]:
        """Actions, the last submitted first.

        labels: only those that have all of these labels.
        since_s: only those that were submitted in the last so many seconds.
        states: such as ("QUEUED", "RUNNING").
        limit: how many at most; 0: all.
        """
        request = {
            **self._about(labels, "submittedSince", since_s),
            "states": ["ACTION_STATE_" + s.upper() for s in states],
            "name": name,
            "class": class_,
            "node": node,
            "trajectoryId": str(trajectory),
        }
        return [Action(raw) for raw in self._newest("ActionService/ListActions", request, "actions", limit)]

    def trajectories(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        since_s: float | None = None,
        states: Sequence[str] = (),
        name_prefix: str = "",
        node: str = "",
        ended: bool = False,
        limit: int = 1000,
    ) -> List[dict]:
        """Trajectories, the last opened first; with ended, also those that are closed or lost.

        The other arguments are as those of list.
        """
        request = {
            **self._about(labels, "openedSince", since_s),
            "states": ["TRAJECTORY_STATE_" + s.upper() for s in states],
            "namePrefix": name_prefix,
            "node": node,
            "includeEnded": ended,
        }
        return self._newest("TrajectoryService/ListTrajectories", request, "trajectories", limit)

    def summaries(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        since_s: float | None = None,
        class_: str = "",
        trajectory: int = 0,
        by: str = "",
    ) -> List[dict]:
        """What actions took together, as docs/api.md has ActionSummary.

        by: a label, for each of whose values there is one summary; else there is one of all.
        """
        request = {**self._about(labels, "submittedSince", since_s), "class": class_, "trajectoryId": str(trajectory), "groupBy": by}
        del request["newestFirst"]
        return self.call("ActionService/SummarizeActions", request).get("summaries", [])

    def _about(self, labels: Mapping[str, str] | None, since: str, since_s: float | None) -> dict[str, Any]:
        request: dict[str, Any] = {"namespace": self.namespace, "labels": dict(labels or {}), "newestFirst": True}
        if since_s is not None:
            request[since] = timestamp(since_s)
        return request

    def _newest(self, method: str, request: dict, field: str, limit: int) -> List[dict]:
        rows: List[dict] = []
        token = ""
        while True:
            size = _PAGE if not limit else min(_PAGE, limit - len(rows))
            page = self.call(method, {**request, "pageSize": size, "pageToken": token})
            rows += page.get(field, [])
            token = page.get("nextPageToken", "")
            if not token or limit and len(rows) >= limit:
                return rows
