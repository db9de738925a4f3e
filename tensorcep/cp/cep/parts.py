"""Parts of the pass that few fits need, by their addresses: without them it compiles in half of the time."""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from tensorcep.core.jit import address_of
from tensorcep.cp.cep.second_order import second_order_message
from tensorcep.cp.cep.slots import cep_slots
from tensorcep.cp.cep.update import likelihood_message, products_with_clamped
from tensorcep.cp.messages.columns import Columns

NUMBER, FLAG, WORK = types.int64, types.boolean, types.Array(types.float64, 2, "C")


def first_order_address() -> Any:
    """The address of `likelihood_message`."""
    how = (NUMBER, FLAG, FLAG, NUMBER, NUMBER)
    return address_of(likelihood_message, types.void(*how, *(NUMBER,) * 4, WORK, _slots()))


def second_order_address() -> Any:
    """The address of `second_order_message`."""
    numbers = (NUMBER,) * 4
    return address_of(second_order_message, types.void(NUMBER, FLAG, *numbers, WORK, _slots()))


def clamped_address(columns: Columns) -> Any:
    """The address of `products_with_clamped`."""
    flags = (FLAG, FLAG, NUMBER, NUMBER)
    return address_of(products_with_clamped, types.void(NUMBER, numba.typeof(columns), *flags, WORK, _slots()))


def _slots() -> Any:
    return numba.typeof(cep_slots(2, 1))
