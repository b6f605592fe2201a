"""The sequence batcher: requests of one sequence run one after the other, on one instance.

`scheduler` joins the parts with the clock and the instances; `direct` and `oldest` decide on
batches, `lanes` on slots, `backlog` on who comes next; `book` knows which sequences there are, and
`controls` tells the model about them. Loop thread only. Behaviour after spec SCH-050..070.
"""

from __future__ import annotations
