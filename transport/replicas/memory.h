// Types that the parts of a reducer share: a stage's memory, and pieces of it. Spans of floats
// point into the memory of the exchange's arithmetic (arithmetic.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Numbers that live as long as a copy of this object.
struct Numbers {
  std::span<float> span;
  std::shared_ptr<const void> owner;
};

// Memory of one parameter of the stage. Does not own it.
struct ParameterMemory {
  std::span<const float> gradient;
  std::span<float> value;  // the value that passes compute with
};

// A piece that this replica owns.
struct OwnPiece {
  Piece piece;
  std::span<float> gradient;  // mean over replicas, once reduced
  std::span<float> master;    // the optimizer's fp32 parameter, which it steps by `gradient`
};

// Numbers that earlier steps have not sent yet, by parameter. Empty for parameters that send
// everything.
using Residuals = std::vector<Numbers>;

template <class T>
std::span<T> Part(std::span<T> of_parameter, const Piece& piece) {
  return of_parameter.subspan(piece.first, piece.count);
}

}  // namespace longhaul::replicas
