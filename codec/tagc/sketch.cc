#include "codec/tagc/sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/tagc/select.h"

namespace longhaul::codec::tagc {
namespace {

// Positions per cell: the limit of peeling with three tables is 0.818. From where the search
// begins, by which factor it goes on, and where it ends whatever is left.
constexpr double kHighestLoad = 0.81, kLoadFactor = 0.97, kLowestLoad = 0.2;
constexpr uint64_t kLeftOutShare = 1000;

// What peeling knows of a cell: how many positions are in it, and the exclusive or of their numbers
// in the bitmap's order, which is the last one's when one is left.
struct Occupants {
  uint32_t count = 0, members = 0;
};

class Peeling {
 public:
  Peeling(const Sketch& sketch, std::span<const uint64_t> bitmap) : sketch_(sketch) {
    positions_.reserve(Count(bitmap));
    ForEach(bitmap,
            [&](uint64_t position) { positions_.push_back(static_cast<uint32_t>(position)); });
    occupants_.resize(sketch.cells());
    for (uint32_t k = 0; k < positions_.size(); ++k) {
      for (const uint64_t cell : CellsOf(k)) {
        ++occupants_[cell].count;
        occupants_[cell].members ^= k;
      }
    }
  }

  std::array<uint64_t, kTables> CellsOf(uint32_t k) const {
    const uint64_t position = positions_[k];
    const BlockPlace place = PlaceOf(sketch_, position / kBlock);
    return {CellOf(place, 0, position), CellOf(place, 1, position), CellOf(place, 2, position)};
  }

  // `body(k, cell, cells)` for each position that is peeled: its number, the cell that has it
  // alone, and all of its cells.
  template <class Body>
  void Run(const Body& body) {
    std::vector<uint32_t> alone;
    for (uint64_t cell = 0; cell < occupants_.size(); ++cell) {
      if (occupants_[cell].count == 1) alone.push_back(static_cast<uint32_t>(cell));
    }
    while (!alone.empty()) {
      const uint32_t cell = alone.back();
      alone.pop_back();
      if (occupants_[cell].count != 1) continue;  // peeled from another of its cells
      const uint32_t k = occupants_[cell].members;
      const auto cells = CellsOf(k);
      body(k, cell, cells);
      for (const uint64_t other : cells) {
        occupants_[other].members ^= k;
        if (--occupants_[other].count == 1) alone.push_back(static_cast<uint32_t>(other));
      }
    }
  }

  const std::vector<uint32_t>& positions() const { return positions_; }

 private:
  const Sketch sketch_;
  std::vector<uint32_t> positions_;
  std::vector<Occupants> occupants_;
};

}  // namespace

std::vector<uint32_t> Unpeelable(const Sketch& sketch, std::span<const uint64_t> bitmap) {
  std::vector<uint32_t> left;
  if (sketch.rows == 0) {
    ForEach(bitmap, [&](uint64_t position) { left.push_back(static_cast<uint32_t>(position)); });
    return left;
  }
  Peeling peeling(sketch, bitmap);
  std::vector<bool> peeled(peeling.positions().size());
  peeling.Run([&](uint32_t k, uint64_t, const auto&) { peeled[k] = true; });
  for (size_t k = 0; k < peeled.size(); ++k) {
    if (!peeled[k]) left.push_back(peeling.positions()[k]);
  }
  return left;
}

SketchPlan PlanSketch(std::span<const uint64_t> bitmap, uint32_t seed) {
  const uint64_t count = Count(bitmap);
  SketchPlan plan{{0, seed}, {}};
  if (count == 0) return plan;
  for (double load = kHighestLoad;; load *= kLoadFactor) {
    const double rows = static_cast<double>(count) / (load * kTables * kBlock);
    const auto whole = static_cast<uint32_t>(std::ceil(rows));
    if (whole == plan.sketch.rows) continue;
    plan.sketch.rows = whole;
    plan.left_out = Unpeelable(plan.sketch, bitmap);
    if (plan.left_out.size() * kLeftOutShare <= count || load < kLowestLoad) return plan;
  }
}

void AddToSketch(const Sketch& sketch, std::span<const uint64_t> bitmap,
                 std::span<const uint32_t> numbers, std::span<uint32_t> cells) {
  uint64_t k = 0;
  for (uint64_t block = 0; block < bitmap.size(); ++block) {
    if (bitmap[block] == 0) continue;
    static_assert(kBlock == 64, "a block is a word of the bitmap");
    const BlockPlace place = PlaceOf(sketch, block);
    for (uint64_t rest = bitmap[block]; rest != 0; rest &= rest - 1, ++k) {
      const auto lane = static_cast<uint64_t>(std::countr_zero(rest));
      for (uint32_t table = 0; table < kTables; ++table) {
        cells[CellOf(place, table, lane)] += numbers[k];
      }
    }
  }
}

bool Peel(const Sketch& sketch, std::span<const uint64_t> bitmap, std::span<uint32_t> cells,
          std::span<uint32_t> numbers) {
  uint64_t peeled = 0;
  Peeling peeling(sketch, bitmap);
  peeling.Run([&](uint32_t k, uint64_t cell, const auto& all) {
    const uint32_t number = cells[cell];
    numbers[k] = number;
    for (const uint64_t other : all) cells[other] -= number;
    ++peeled;
  });
  return peeled == numbers.size() &&
         std::all_of(cells.begin(), cells.end(), [](uint32_t cell) { return cell == 0; });
}

}  // namespace longhaul::codec::tagc
