// The token tables of one side of a boundary (format.h). The codec predict reads and updates them.
//
//   LH_ASSIGN_OR_RETURN(
//       Tables tables, Tables::Create({.vocabulary = 50257, .channels = 1600}));
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
  // Number of rows in bf16: first a row for each token of the vocabulary, then a row for each hash
  // of a token pair. A row's number is its place. The mean over all tokens has the place rows().
  uint64_t rows() const { return uint64_t{vocabulary} + pairs; }
  // The memory of tables: the mean in fp32, the counts (uint32) in the order of places, the rows in
  // bf16. Offsets are in bytes, multiples of 64.
  uint64_t counts_offset() const { return Align(uint64_t{channels} * sizeof(float)); }
  uint64_t rows_offset() const { return counts_offset() + Align((rows() + 1) * sizeof(uint32_t)); }
  // 0 without rows.
  uint64_t bytes() const {
    return rows() == 0 ? 0 : rows_offset() + rows() * channels * sizeof(uint16_t);
  }
  friend bool operator==(const TablesShape&, const TablesShape&) = default;

 private:
  static uint64_t Align(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
};

// Returns the shape of the tables that `codec` needs. codec.predicts_by_tokens() must be true.
TablesShape TablesShapeFor(const Codec& codec, uint32_t vocabulary, uint32_t channels);

class Tables {
 public:
  // Makes tables that have learned nothing: all numbers and counts are 0. Returns
  // kResourceExhausted if there is not enough memory.
  static StatusOr<Tables> Create(const TablesShape& shape);

  const TablesShape& shape() const { return shape_; }
  // All numbers, as TablesShape lays them out.
  std::span<std::byte> memory() { return memory_.span(); }
  std::span<const std::byte> memory() const { return memory_.span(); }
  // The mean over all tokens: a number for each channel.
  float* mean() { return reinterpret_cast<float*>(start()); }
  const float* mean() const { return reinterpret_cast<const float*>(start()); }
  // A count for each row, in the order of places; the last one is the mean's.
  std::span<uint32_t> counts() {
    return {reinterpret_cast<uint32_t*>(start() + shape_.counts_offset()), shape_.rows() + 1};
  }
  std::span<const uint32_t> counts() const {
    return {reinterpret_cast<const uint32_t*>(start() + shape_.counts_offset()), shape_.rows() + 1};
  }
  // The numbers of a row, bits of bf16.
  uint16_t* Row(uint64_t place) { return RowAt(start(), place); }
  const uint16_t* Row(uint64_t place) const {
    return RowAt(const_cast<std::byte*>(start()), place);
  }
  // Copies all numbers and the check. `other` must have the same shape.
  void CopyFrom(const Tables& other);
  // The check of format.h: a hash of all updates so far.
  uint64_t check() const { return check_; }
  void set_check(uint64_t check) { check_ = check; }

 private:
  Tables(const TablesShape& shape, AlignedBuffer memory);
  std::byte* start() { return memory_.span().data(); }
  const std::byte* start() const { return memory_.span().data(); }
  uint16_t* RowAt(std::byte* memory, uint64_t place) const {
    return reinterpret_cast<uint16_t*>(memory + shape_.rows_offset()) + place * shape_.channels;
  }

  TablesShape shape_;
  AlignedBuffer memory_;
  uint64_t check_ = 0;
};

}  // namespace longhaul::codec::predict
