// The numbers that ranks exchange, and what sums of them are: a short sequence that repeats, so
// that results of any size can be compared with little work. A rank's sequence begins at another
// place than its neighbours'.
//
// Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::bench {

float ToFloat(const std::byte* element, Dtype dtype);

class Numbers {
 public:
  // `data`: normal, student_t (3 degrees of freedom), zeros, or an .npy file of fp32, fp16 or bf16
  // (as uint16). `most`: elements of the largest tensor; a sequence is not made longer.
  static StatusOr<Numbers> Create(const std::string& data, Dtype dtype, uint32_t ranks,
                                  uint64_t most);

  // Elements [first, first + to.size() / element) of a rank's input.
  void Inputs(uint32_t rank, uint64_t first, std::span<std::byte> to) const;
  // The same of the sum over all ranks, made in fp32 in the order of ranks and rounded once.
  void Sums(uint64_t first, std::span<std::byte> to) const;
  // What the sum's addends are together, signs left out: the measure of its rounding errors.
  float Magnitude(uint64_t element) const;

 private:
  Numbers(Dtype dtype, uint32_t ranks) : dtype_(dtype), ranks_(ranks) {}
  void SumUp();
  uint64_t At(uint32_t rank, uint64_t element) const;
  void Tile(const std::vector<std::byte>& from, uint64_t first, std::span<std::byte> to) const;

  Dtype dtype_;
  uint32_t ranks_;
  uint64_t length_ = 0;
  std::vector<std::byte> numbers_, sums_;
};

}  // namespace longhaul::collective::bench
