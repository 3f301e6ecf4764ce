// A count sketch of the kept gradients of one shard, which several replicas fill and whose sum one
// of them takes apart again.
//
// Positions lie in blocks of kBlock in a row. Each of three tables of `rows` rows has kBlock cells
// a row. In table t a block goes to row Row(t) of it, and lane l of the block to cell l ^ Turn(t)
// of the row: memory is accessed in whole rows, and lanes are mixed, so that a shard's positions
// fail or succeed together like one large table and not like kBlock small ones.
//
// A cell is the sum, modulo 2^32, of fixed-point numbers. Such sums are exact in any order, and
// so are the differences that peeling takes: signs and estimates are not needed. Which positions
// can be peeled depends on the positions alone. So whoever knows the union of all kept positions
// finds out before anything is sent how many rows are enough, and which positions cannot be had
// (their cells hold two or more positions for ever); these are left out of the sketch and sent by
// themselves.
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
// Positions of a shard; a bitmap of it has 64 MiB.
inline constexpr uint64_t kMostPositions = uint64_t{1} << 29;

struct Sketch {
  uint32_t rows = 0;  // of each table; 0: nothing is in the sketch
  uint32_t seed = 0;
  constexpr uint64_t cells() const { return uint64_t{kTables} * rows * kBlock; }
  bool operator==(const Sketch&) const = default;
};

// Where a block goes in the three tables.
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
// The smallest sketch of which at most a thousandth of the union cannot be peeled; of few
// positions, where none may be found, one with five cells for each position.
SketchPlan PlanSketch(std::span<const uint64_t> bitmap, uint32_t seed);
// Positions that a sketch of these rows cannot give, in order.
std::vector<uint32_t> Unpeelable(const Sketch& sketch, std::span<const uint64_t> bitmap);

// Adds number k to the cells of the k-th position of `bitmap`.
void AddToSketch(const Sketch& sketch, std::span<const uint64_t> bitmap,
                 std::span<const uint32_t> numbers, std::span<uint32_t> cells);

// Takes apart sums of numbers at the positions of `bitmap`; `cells` becomes all zeros where `cells`
// is such a sum. False: it is not, or a position cannot be peeled. `numbers` has one for each
// position of the bitmap.
bool Peel(const Sketch& sketch, std::span<const uint64_t> bitmap, std::span<uint32_t> cells,
          std::span<uint32_t> numbers);

}  // namespace longhaul::codec::tagc
