// Applies the codec `taco` in an engine's memory. Its output, a payload, is a blob of the codec
// without the header (codec/taco/flat.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "codec/taco/flat.h"
#include "codec/taco/format.h"
#include "transport/collective/engine/engine.h"

namespace longhaul::collective::taco {

// Calls with a queue of a device only queue work; in host memory they are done when they return.
// Works for kF32, kF16 and kBf16. Not thread-safe.
class Coder {
 public:
  static constexpr size_t kNoneIsOwn = codec::TacoReduceArgs::kNoneIsOwn;
  // `engine` must outlive the coder.
  static StatusOr<std::unique_ptr<Coder>> Create(Engine* engine, const codec::taco::Params& params);
  virtual ~Coder() = default;

  // Returns the bytes of a payload of `elements` numbers: a multiple of 16; 0 for no elements.
  virtual uint64_t Bytes(uint64_t elements) const = 0;
  // Payloads must begin at multiples of 16 bytes.
  virtual Status Encode(const void* in, uint64_t elements, Dtype dtype, std::byte* payload,
                        Queue queue) = 0;
  virtual Status Decode(const std::byte* payload, uint64_t elements, Dtype dtype, void* out,
                        Queue queue) = 0;
  // Sums the parts. Each part is a payload, except parts[own], which holds numbers of `dtype`; if
  // `own` is kNoneIsOwn, all parts are payloads. If `payload` is null, writes the sum, rounded to
  // `dtype`, to `out`. Otherwise encodes the sum in `payload`, and writes what Decode would return
  // for this payload to `out`.
  virtual Status Reduce(std::span<const void* const> parts, size_t own, uint64_t elements,
                        Dtype dtype, std::byte* payload, void* out, Queue queue) = 0;
};

}  // namespace longhaul::collective::taco
