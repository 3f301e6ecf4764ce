#include "codec/taco/checks.h"

#include <fmt/format.h>

#include <string>

namespace longhaul::codec::taco {
namespace {

Status CheckParams(const Params& params) {
  if (Possible(params)) return absl::OkStatus();
  return InvalidArgument(
      "expected a format of taco and blocks of 32, 64, 128, 256 or 512, got format {}, "
      "blocks of {}",
      static_cast<int>(params.format), params.block);
}

Status CheckElements(std::string_view what, const void* data, Dtype dtype, uint64_t elements) {
  if (dtype < Dtype::kF32 || dtype > Dtype::kBf16) {
    return InvalidArgument("expected a dtype of 1 to 3, got {}", static_cast<int>(dtype));
  }
  if (elements > kMaxElements) {
    return InvalidArgument("expected at most 2^32 elements, got {}", elements);
  }
  if (elements == 0) return absl::OkStatus();
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % BytesPerElement(dtype) != 0) {
    return InvalidArgument("expected {} aligned to {} bytes, got {}", what, BytesPerElement(dtype),
                           data);
  }
  return absl::OkStatus();
}

Status CheckPayload(std::string_view what, const void* data, uint64_t bytes, uint64_t needed) {
  if (needed == 0) return absl::OkStatus();
  if (data == nullptr || bytes < needed ||
      reinterpret_cast<uintptr_t>(data) % kTacoAlignment != 0) {
    return InvalidArgument("expected {} of {} bytes aligned to {}, got {} bytes at {}", what,
                           needed, kTacoAlignment, bytes, data);
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckFlat(std::string_view what, const void* elements_at, Dtype dtype, uint64_t elements,
                 const Params& params, const void* payload, uint64_t payload_bytes) {
  LH_RETURN_IF_ERROR(CheckParams(params));
  LH_RETURN_IF_ERROR(CheckElements(what, elements_at, dtype, elements));
  return CheckPayload("a payload", payload, payload_bytes, TacoPayloadBytes(elements, params));
}

Status CheckReduce(const TacoReduceArgs& args) {
  LH_RETURN_IF_ERROR(CheckParams(args.params));
  const uint64_t bytes = TacoPayloadBytes(args.elements, args.params);
  if (args.parts.size() < kMinTacoParts || args.parts.size() > kMaxTacoParts ||
      (args.own >= args.parts.size() && args.own != TacoReduceArgs::kNoneIsOwn)) {
    return InvalidArgument(
        "expected {} to {} parts, at most one of them the own one, got {}, the own one "
        "{}",
        kMinTacoParts, kMaxTacoParts, args.parts.size(), args.own);
  }
  for (size_t part = 0; part < args.parts.size(); ++part) {
    const std::string what = fmt::format("part {}", part);
    LH_RETURN_IF_ERROR(part == args.own
                           ? CheckElements(what, args.parts[part], args.dtype, args.elements)
                           : CheckPayload(what, args.parts[part], bytes, bytes));
  }
  LH_RETURN_IF_ERROR(CheckElements("an output", args.out, args.dtype, args.elements));
  if (args.out_payload.empty()) return absl::OkStatus();
  return CheckPayload("an output payload", args.out_payload.data(), args.out_payload.size(), bytes);
}

}  // namespace longhaul::codec::taco
