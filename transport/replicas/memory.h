// Types for a stage's memory, and for pieces of it, that the parts of a reducer share. Spans of
// floats point into host or GPU memory, as the arithmetic decides (arithmetic.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Numbers with their memory, which lives as long as any copy of this object.
struct Numbers {
  std::span<float> span;
  std::shared_ptr<const void> owner;
};

// The stage's memory of one parameter. The caller owns the memory.
struct ParameterMemory {
  std::span<const float> gradient;
  std::span<float> value;  // what forward and backward passes compute with
};

// A piece that this replica owns. The reducer owns the memory of both spans.
struct OwnPiece {
  Piece piece;
  std::span<float> gradient;  // mean over replicas, once the bucket is reduced
  std::span<float> master;    // fp32 parameter, which the optimizer updates by `gradient`
};

// The parts of gradients that earlier steps did not send, by parameter. A parameter's entry is
// empty if each step sends everything.
using Residuals = std::vector<Numbers>;

// Returns the part of `of_parameter`, a span over the whole parameter, that belongs to `piece`.
template <class T>
std::span<T> Part(std::span<T> of_parameter, const Piece& piece) {
  return of_parameter.subspan(piece.first, piece.count);
}

}  // namespace longhaul::replicas
