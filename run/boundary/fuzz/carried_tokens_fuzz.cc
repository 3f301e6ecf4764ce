// Any bytes as the token ids behind an activation: ids of the vocabulary, or refused.
//
// The input: u8 samples, u8 tokens, u8 vocabulary, the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/fuzz/target.h"
#include "run/boundary/carried_tokens.h"

LH_FUZZ_TARGET(carried_tokens) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace)
  if (size < 3) return false;
  const codec::Shape shape{data[0] % 5u, data[1] % 40u, 8};
  // Two bytes of each id, or four.
  const uint32_t vocabulary = data[2] % 2 == 0 ? 1u + data[2] : 70'000u;
  const auto behind = std::as_bytes(std::span(data, size)).subspan(3);
  const auto ids = ReadCarried(behind, shape, vocabulary);
  if (!ids.ok()) return false;
  if (ids->size() != size_t{shape.samples} * shape.tokens) std::abort();
  if (std::ranges::any_of(*ids, [&](uint32_t id) { return id >= vocabulary; })) std::abort();
  std::vector<std::byte> again(CarriedBytes(shape, vocabulary));
  WriteCarried(*ids, vocabulary, again);
  const auto read = ReadCarried(again, shape, vocabulary);
  if (!read.ok() || *read != *ids) std::abort();
  return true;
}
