// What the parts of a reducer share: a stage's memory, and pieces of it.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_MEMORY_H_
#define LONGHAUL_TRANSPORT_REPLICAS_MEMORY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Of one parameter of the stage. Not owned.
struct ParameterMemory {
  std::span<const float> gradient;
  std::span<float> value;  // what the passes compute with
};

// A piece that this replica owns.
struct OwnPiece {
  Piece piece;
  std::vector<float> gradient;  // mean over replicas, once it is reduced
  std::vector<float> master;    // the optimizer's parameter, which steps by `gradient`
};

// What earlier steps did not send, of each parameter of which something may stay: sizes of the
// parameters, else empty.
using Residuals = std::vector<std::vector<float>>;

template <class T>
std::span<T> Part(std::span<T> of_parameter, const Piece& piece) {
  return of_parameter.subspan(piece.first, piece.count);
}
inline std::span<float> Part(std::vector<float>& of_parameter, const Piece& piece) {
  return Part(std::span(of_parameter), piece);
}

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_MEMORY_H_
