#include "codec/predict/tables.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "codec/predict/arithmetic.h"

namespace longhaul::codec::predict {

TablesShape TablesShapeFor(const Codec& codec, uint32_t vocabulary, uint32_t channels) {
  return {vocabulary, channels, static_cast<uint32_t>(codec.TableRows(vocabulary) - vocabulary)};
}

StatusOr<Tables> Tables::Create(const TablesShape& shape) {
  try {
    return Tables(shape, AlignedBuffer(shape.bytes()));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        "no memory for the {} bytes of tables of {} tokens and {} pairs x {} channels",
        shape.bytes(), shape.vocabulary, shape.pairs, shape.channels);
  }
}

Tables::Tables(const TablesShape& shape, AlignedBuffer memory)
    : shape_(shape),
      memory_(std::move(memory)),
      check_(FirstCheck(shape.vocabulary, shape.channels)) {
  if (memory_.size() > 0) std::memset(memory_.span().data(), 0, memory_.size());
}

void Tables::CopyFrom(const Tables& other) {
  std::ranges::copy(other.memory(), memory().begin());
  check_ = other.check_;
}

}  // namespace longhaul::codec::predict
