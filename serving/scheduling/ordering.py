"""Releases responses in the order in which their requests arrived (preserve_ordering).

Stands between an instance host and the model: it replaces `request.deliver` and holds back what is
early. Loop thread only. Behaviour after spec SCH-034.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from serving.request import InferenceRequest
from serving.response import InferenceResponse

Deliver = Callable[[InferenceRequest, InferenceResponse], None]


class _Place:
    __slots__ = ("deliver", "held", "is_complete")

    def __init__(self, deliver: Deliver | None) -> None:
        self.deliver = deliver
        self.held: list[InferenceResponse] = []
        self.is_complete = False


class ResponseOrder:
    def __init__(self) -> None:
        self._places: OrderedDict[InferenceRequest, _Place] = OrderedDict()

    def __repr__(self) -> str:
        held = sum(len(place.held) for place in self._places.values())
        return f"<ResponseOrder open={len(self._places)} held={held}>"

    def __contains__(self, request: object) -> bool:
        return request in self._places

    def join(self, request: InferenceRequest) -> None:
        """The request takes the last place; its responses come here from now on."""
        self._places[request] = _Place(request.deliver)
        request.deliver = self._deliver

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        place = self._places.get(request)
        if place is None or place.is_complete:
            return
        place.held.append(response)
        place.is_complete = response.is_final
        while self._places:
            first, place = next(iter(self._places.items()))
            held, place.held = place.held, []
            if place.is_complete:
                # Before its callbacks run: they may deliver again.
                del self._places[first]
            for item in held:
                if place.deliver is not None:
                    place.deliver(first, item)
            if not place.is_complete:
                return
