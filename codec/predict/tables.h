// The token tables of one side of a boundary (format.h). The codec predict reads and updates them.
//
//   LH_ASSIGN_OR_RETURN(
//       Tables tables, Tables::Create({.vocabulary = 50257, .channels = 1600, .pairs = 65536}));
//   context.token_ids = ids; context.tables = &tables; context.learns = true;
//   LH_RETURN_IF_ERROR(codec->Encode(view, context, ...));
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec::predict {

struct TablesShape {
  uint32_t vocabulary = 0, channels = 0;
  uint32_t pairs = 0;  // rows for hashes of token pairs; 0: no table of pairs
  uint64_t rows() const { return uint64_t{vocabulary} + pairs; }
  // Returns the size of the means and counts in bytes.
  uint64_t bytes() const { return rows() * (uint64_t{channels} + 1) * sizeof(float); }
  friend bool operator==(const TablesShape&, const TablesShape&) = default;
};

// Returns the shape of the tables that `codec` needs. codec.predicts_by_tokens() must be true.
TablesShape TablesShapeFor(const Codec& codec, uint32_t vocabulary, uint32_t channels);

class Tables {
 public:
  // Makes tables that have learned nothing: all means and counts are 0. Returns kResourceExhausted
  // if there is not enough memory.
  static StatusOr<Tables> Create(const TablesShape& shape);

  const TablesShape& shape() const { return shape_; }
  // All rows of means, a mean for each channel: first a row for each token of the vocabulary, then
  // a row for each hash of a token pair.
  std::span<float> means() { return means_; }
  std::span<const float> means() const { return means_; }
  // A count for each row, in the order of means().
  std::span<uint32_t> counts() { return counts_; }
  std::span<const uint32_t> counts() const { return counts_; }
  float* MeansOf(uint64_t row) { return means_.data() + row * shape_.channels; }
  const float* MeansOf(uint64_t row) const { return means_.data() + row * shape_.channels; }
  // Copies all numbers and the check. `other` must have the same shape.
  void CopyFrom(const Tables& other);
  // The check of format.h: a hash of all updates so far.
  uint64_t check() const { return check_; }
  void set_check(uint64_t check) { check_ = check; }

 private:
  Tables(const TablesShape& shape, AlignedBuffer memory);

  TablesShape shape_;
  AlignedBuffer memory_;
  std::span<float> means_;
  std::span<uint32_t> counts_;
  uint64_t check_ = 0;
};

}  // namespace longhaul::codec::predict
