#include "python/ops/tensors.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "codec/blob.h"

namespace longhaul::ops {
namespace {

// Nobody uses so many codecs, but a search may make up ever new parameters.
constexpr size_t kMostCodecs = 1024;

}  // namespace

void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  const std::string message(Message(status));
  TORCH_CHECK_VALUE(!absl::IsInvalidArgument(status), message);
  TORCH_CHECK_NOT_IMPLEMENTED(!absl::IsUnimplemented(status), message);
  TORCH_CHECK(false, message);
}

codec::Dtype DtypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return codec::Dtype::kF32;
    case at::kHalf:
      return codec::Dtype::kF16;
    case at::kBFloat16:
      return codec::Dtype::kBf16;
    default:
      TORCH_CHECK_TYPE(false, "codecs take float32, float16 and bfloat16; got ", type,
                       "; convert it first, e.g. by x.to(torch.float32)");
  }
}

at::ScalarType ScalarTypeOf(codec::Dtype dtype) {
  return dtype == codec::Dtype::kF32   ? at::kFloat
         : dtype == codec::Dtype::kF16 ? at::kHalf
                                       : at::kBFloat16;
}

codec::Shape ShapeOf(at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(!sizes.empty() && sizes.size() <= 3,
                    "codecs take tensors of 1 to 3 dimensions (samples, tokens, channels); got ",
                    sizes.size(), " dimensions; reshape it first, e.g. by x.flatten(0, -3)");
  uint32_t whole[3] = {1, 1, 1};
  for (size_t k = 0; k < sizes.size(); ++k) {
    TORCH_CHECK_VALUE(sizes[k] >= 0 && sizes[k] <= std::numeric_limits<uint32_t>::max(),
                      "expected dimensions from 0 to 4294967295, got ", sizes[k]);
    whole[3 - sizes.size() + k] = static_cast<uint32_t>(sizes[k]);
  }
  const codec::Shape shape{whole[0], whole[1], whole[2]};
  ThrowIfError(codec::CheckShape(shape));
  return shape;
}

codec::Context ContextOf(int64_t seed, std::string_view direction) {
  TORCH_CHECK_VALUE(direction == "forward" || direction == "backward",
                    "expected direction 'forward' or 'backward', got '", std::string(direction),
                    "'");
  codec::Context context;
  context.seed = static_cast<uint64_t>(seed);
  context.direction = direction == "forward" ? Direction::kForward : Direction::kBackward;
  return context;
}

std::shared_ptr<const codec::cuda::CudaCodec> FindCodec(std::string_view text) {
  // Never destroyed: threads of the interpreter outlive static objects.
  static auto& mutex = *new std::mutex;
  static auto& codecs =
      *new std::map<std::string, std::shared_ptr<const codec::cuda::CudaCodec>, std::less<>>;
  const std::lock_guard lock(mutex);
  const auto known = codecs.find(text);
  if (known != codecs.end()) return known->second;
  auto made = std::make_shared<const codec::cuda::CudaCodec>(
      ValueOrThrow(codec::cuda::CudaCodec::Create(text)));
  if (codecs.size() >= kMostCodecs) codecs.clear();
  codecs.emplace(text, made);
  return made;
}

}  // namespace longhaul::ops
