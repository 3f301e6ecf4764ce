// A count sketch of the kept gradients of one shard. Several replicas fill it, and one of them
// recovers the numbers from the sum.
//
// Positions lie in blocks of kBlock in a row. Each of three tables of `rows` rows has kBlock cells
// a row. In table t a block goes to row Row(t) of it, and lane l of the block to cell l ^ Turn(t)
// of the row: memory is accessed in whole rows, and lanes are mixed, so that a shard's positions
// fail or succeed together like one large table and not like kBlock small ones.
//
// A cell is the sum, modulo 2^32, of fixed-point numbers. Such sums are exact in any order, and so
// are the differences of peeling: signs and estimates are not needed. Which positions can be peeled
// depends on the positions alone. So a replica that knows the union of all kept positions can
// compute, before anything is sent, how many rows are enough, and which positions cannot be
// recovered (their cells always hold two or more positions). These positions are left out of the
// sketch and sent separately.
//
// Threads: pure functions.
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
  uint32_t rows = 0;  // of each table; 0: the sketch is empty
  uint32_t seed = 0;
  constexpr uint64_t cells() const { return uint64_t{kTables} * rows * kBlock; }
  bool operator==(const Sketch&) const = default;
};

// The cells of a block in the three tables.
struct BlockPlace {
  std::array<uint32_t, kTables> first;  // cell of lane 0 before the turn
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
constexpr uint64_t CellOf(const BlockPlace& place, uint32_t table, uint64_t position) {
  return place.first[table] + ((position & (kBlock - 1)) ^ place.turn[table]);
}

struct SketchPlan {
  Sketch sketch;
  std::vector<uint32_t> left_out;  // positions that cannot be peeled, in order
};
// Returns the smallest sketch in which at most a thousandth of the union cannot be peeled. For few
// positions there may be none; then the sketch has five cells for each position.
SketchPlan PlanSketch(std::span<const uint64_t> bitmap, uint32_t seed);
// Returns the positions that cannot be recovered from a sketch with these rows, in order.
std::vector<uint32_t> Unpeelable(const Sketch& sketch, std::span<const uint64_t> bitmap);

// Adds number k to the cells of the k-th position of `bitmap`.
void AddToSketch(const Sketch& sketch, std::span<const uint64_t> bitmap,
                 std::span<const uint32_t> numbers, std::span<uint32_t> cells);

// Recovers sums of numbers at the positions of `bitmap`; `cells` becomes all zeros if `cells` is
// such a sum. False: it is not, or a position cannot be peeled. `numbers` has one element for each
// position of the bitmap.
bool Peel(const Sketch& sketch, std::span<const uint64_t> bitmap, std::span<uint32_t> cells,
          std::span<uint32_t> numbers);

}  // namespace longhaul::codec::tagc
