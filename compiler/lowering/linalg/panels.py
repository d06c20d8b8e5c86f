"""A panel of the second operand of a contraction, packed: its vectors one after the other, as tiles will read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchstone.compiler import mlir
from torchstone.compiler.lowering.linalg import scalars as s

if TYPE_CHECKING:
    from torchstone.compiler.lowering.linalg.contraction import Tiles


class Panel:
    """A block of the summed dims and as many vectors of columns as a tile has.

    Where b is read along a summed dim, squares of as many vectors as one has lanes are transposed in registers.
    """

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles

    def empty(self) -> Any:
        """Return the tensor to pack into; a summed dim that is read by vectors has room for whole ones."""
        tiles, lanes = self.tiles, self.tiles.lanes
        sizes = [tiles.block, *(tiles.sizes[d] for d in tiles.summed[1:])]
        room = [-(-n // lanes) * lanes if d == tiles.along else n for d, n in zip(tiles.summed, sizes, strict=True)]
        return tiles.emitter.empty([*room, tiles.width * lanes], tiles.element)

    def vector(self, j: int) -> Any:
        """Return a vector at the place of the summed loops."""
        at = self._place(s.constant(s.index(), j * self.tiles.lanes))
        return self.tiles.read_at(self.tiles.tensors[1], at)

    def fill(self, vectors: int, *, fits: bool) -> None:
        """Pack the panel that the column is at; what is past the last column, if it does not fit, means nothing."""
        tiles, summed = self.tiles, list(self.tiles.summed)
        column = tiles.at[tiles.column]

        def squares(offset: Any) -> None:
            start = mlir.arith.addi(column, offset)
            self._over(summed, lambda: self._square(start, offset, fits=fits))

        if tiles.along == tiles.column:
            self._over(summed, lambda: self._copy(column, vectors, fits=fits))
        else:
            tiles.run(vectors * tiles.lanes, tiles.lanes, squares)
        tiles.at[tiles.column] = column

    def _over(self, dims: list[int], body: Callable[[], None]) -> None:
        """Go over the summed dims of the block."""
        tiles = self.tiles
        if not dims:
            return body()

        def at(place: Any) -> None:
            tiles.to_place(dims[0], place)
            self._over(dims[1:], body)

        return tiles.run(tiles.count(dims[0]), tiles.lanes if dims[0] == tiles.along else 1, at)

    def _copy(self, column: Any, vectors: int, *, fits: bool) -> None:
        tiles = self.tiles
        for j in range(vectors):
            tiles.move(tiles.column, column, j * tiles.lanes)
            inside = fits or j + 1 < vectors
            self._write(tiles.read(*tiles.b, fits=inside), s.constant(s.index(), j * tiles.lanes))

    def _square(self, column: Any, offset: Any, *, fits: bool) -> None:
        """Read a vector along a summed dim from each of as many columns as there are lanes, and write them across."""
        tiles, arith = self.tiles, mlir.arith
        whole = tiles.sizes[tiles.along] % tiles.lanes == 0
        last = s.constant(s.index(), tiles.sizes[tiles.column] - 1)
        rows = []
        for i in range(tiles.lanes):
            tiles.move(tiles.column, column, i)
            if not fits:
                tiles.at[tiles.column] = arith.minsi(tiles.at[tiles.column], last)
            rows.append(tiles.read(*tiles.b, fits=whole))
        start = tiles.place[tiles.along]
        for i, value in enumerate(transposed(rows)):
            tiles.place[tiles.along] = arith.addi(start, s.constant(s.index(), i))
            self._write(value, offset)

    def _write(self, value: Any, offset: Any) -> None:
        tiles = self.tiles
        tiles.tensors[1] = tiles.write_at(value, tiles.tensors[1], self._place(offset))

    def _place(self, offset: Any) -> list[Any]:
        return [*(self.tiles.place[d] for d in self.tiles.summed), offset]


def transposed(rows: list[Any]) -> list[Any]:
    """Return the columns of a square of vectors: halves of it change places, then halves of those, down to elements."""
    count = len(rows)
    half = count // 2
    while half:
        low = [lane if not lane & half else count + lane - half for lane in range(count)]
        high = [lane + half if not lane & half else count + lane for lane in range(count)]
        for i in range(count):
            if not i & half:
                a, b = rows[i], rows[i + half]
                rows[i], rows[i + half] = (mlir.vector.ShuffleOp(a, b, mask).result for mask in (low, high))
        half //= 2
    return rows
