// A count sketch of the gradients that a replica sends for one shard of the parameters: an array of
// sums, called cells. Each replica fills a sketch with the gradients that it sends. The replica
// that owns the shard adds up the sketches, and recovers from the result the sum of the gradients
// at each position of the shard.
//
// A sketch has three tables of `rows` rows with kBlock cells each, and every position has one cell
// in each table. kBlock consecutive positions are a block. In each table a hash gives the block a
// row and a number `turn`; position l of the block has cell l ^ turn of the row. So memory is
// accessed in whole rows. Because of the turns, a table still spreads the positions as one large
// hash table does, not as kBlock small ones.
//
// A cell is the sum, modulo 2^32, of the fixed-point numbers of its positions. To recover the
// numbers the sketch is peeled: a cell with only one position left gives this position's number,
// which is then subtracted from all cells of the position, and so on. Sums and differences are
// exact in any order, so peeling gives exact numbers. Which positions can be peeled depends only on
// the positions, not on the numbers. A replica that knows the union of all replicas' positions can
// therefore compute, before sketches are sent, how many rows are enough and which positions cannot
// be peeled. These positions are left out of the sketches and sent separately.
//
// Threads: pure functions. They do not check arguments; only Peel can fail. In bitmaps, position p
// has bit p % 64 of word p / 64 (select.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/mix.h"

namespace longhaul::codec::tagc {

inline constexpr uint32_t kTables = 3;
inline constexpr uint32_t kBlock = 64;
// Maximum number of positions in a shard, whose bitmap then has 64 MiB.
inline constexpr uint64_t kMostPositions = uint64_t{1} << 29;

struct Sketch {
  uint32_t rows = 0;  // of each table. 0: the sketch has no cells and takes no positions
  uint32_t seed = 0;  // of the hash. The same on all replicas
  constexpr uint64_t cells() const { return uint64_t{kTables} * rows * kBlock; }
  bool operator==(const Sketch&) const = default;
};

// Where a block's cells are in the three tables.
struct BlockPlace {
  std::array<uint32_t, kTables> first;  // first cell of the block's row
  std::array<uint32_t, kTables> turn;
};
constexpr BlockPlace PlaceOf(const Sketch& sketch, uint64_t block) {
  BlockPlace place{};
  for (uint32_t table = 0; table < kTables; ++table) {
    const uint64_t word =
        Mix64((uint64_t{sketch.seed} << 32 | table << 24) * 0x9e3779b97f4a7c15ull +
              block * 0xd1342543de82ef95ull + 1);
    const uint64_t row = (word >> 32) * sketch.rows >> 32;
    place.first[table] = static_cast<uint32_t>((uint64_t{table} * sketch.rows + row) * kBlock);
    place.turn[table] = static_cast<uint32_t>(word) & (kBlock - 1);
  }
  return place;
}
// Returns the index of the cell that `position`, a position of the block, has in table `table`.
constexpr uint64_t CellOf(const BlockPlace& place, uint32_t table, uint64_t position) {
  return place.first[table] + ((position & (kBlock - 1)) ^ place.turn[table]);
}

struct SketchPlan {
  Sketch sketch;
  std::vector<uint32_t> left_out;  // positions that cannot be peeled, in order
};
// Tries larger and larger sketches, in steps of about 3 %, until at most a thousandth of the
// positions of `bitmap`, the union, cannot be peeled. If this does not succeed, as may be with few
// positions, the result has about five cells for each position, but at least two rows. Without
// positions, the sketch has 0 rows.
SketchPlan PlanSketch(std::span<const uint64_t> bitmap, uint32_t seed);
// Returns the positions of `bitmap`, in order, that cannot be peeled from a sketch that has all
// positions of `bitmap`.
std::vector<uint32_t> Unpeelable(const Sketch& sketch, std::span<const uint64_t> bitmap);

// Adds numbers[k] to the cells of the k-th position of `bitmap`, modulo 2^32. `cells` has
// sketch.cells() words. If sketch.rows is 0, `bitmap` must have no positions.
void AddToSketch(const Sketch& sketch, std::span<const uint64_t> bitmap,
                 std::span<const uint32_t> numbers, std::span<uint32_t> cells);

// Recovers the number at each position of `bitmap` from `cells`, a sum of sketches of numbers at
// these positions. `numbers` has one element for each position. Returns true if it succeeds; all
// cells are then zero. Returns false if a position cannot be peeled, or if a cell is not zero at
// the end, which shows that `cells` was not such a sum.
bool Peel(const Sketch& sketch, std::span<const uint64_t> bitmap, std::span<uint32_t> cells,
          std::span<uint32_t> numbers);

}  // namespace longhaul::codec::tagc
