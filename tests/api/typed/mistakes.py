"""What mypy is to refuse: each line that is marked so, with that code."""

from __future__ import annotations

import minirt as rt
from tests.api.typed.job import Visits, clicks, user_of, users

clicks.map(str.upper)  # refused: arg-type
users.key_by(user_of)  # refused: arg-type
users.key_by(str.upper).process(Visits())  # refused: arg-type
clicks.map(user_of, paralelism=2)  # refused: call-arg
clicks.map(user_of, parallelism="2")  # refused: arg-type
Visits().seen.set("one")  # refused: arg-type
rt.Environment().execute(restores="latest")  # refused: call-arg
