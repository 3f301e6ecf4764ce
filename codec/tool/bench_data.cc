#include "codec/tool/bench_data.h"

#include <algorithm>

#include "base/philox.h"
#include "codec/registry.h"
#include "codec/tool/files.h"

namespace longhaul::codec {
namespace {

void FillActivations(bool outliers, NpyArray* array) {
  auto* values = reinterpret_cast<float*>(array->data.span().data());
  const uint64_t elements = array->shape.elements();
  for (uint64_t k = 0; k < elements; ++k) {
    const Philox::Counter words =
        Philox::Generate({static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32), 0, 0}, {1, 2});
    float sum = -1.5f;
    for (size_t word = 0; word < 3; ++word) sum += Philox::ToUnit(words[word]);
    values[k] = outliers && words[3] % 97 == 0 ? sum * 50 : sum * 2;
  }
}

}  // namespace

StatusOr<Shape> BenchShape(uint64_t elements, uint32_t samples, uint32_t channels) {
  const uint64_t most = elements / samples;
  const auto width = static_cast<uint32_t>(std::min<uint64_t>(channels, most));
  if (width == 0) {
    return InvalidArgument(
        "expected at least one element a sample; {} elements are to be {} samples", elements,
        samples);
  }
  return Shape{samples, static_cast<uint32_t>(most / width), width};
}

std::vector<uint32_t> MakeIds(const Shape& shape, uint32_t vocabulary, bool equal) {
  std::vector<uint32_t> ids(uint64_t{shape.samples} * shape.tokens);
  for (uint32_t k = 0; k < ids.size(); ++k) {
    ids[k] = equal ? 0 : Philox::Generate({k, 0, 0, 0}, {3, 4})[0] % vocabulary;
  }
  return ids;
}

StatusOr<NpyArray> MakeActivations(Dtype dtype, const Shape& shape, bool outliers) {
  LH_ASSIGN_OR_RETURN(NpyArray fp32, MakeArray(Dtype::kF32, shape));
  FillActivations(outliers, &fp32);
  if (dtype == Dtype::kF32) return fp32;
  LH_ASSIGN_OR_RETURN(const auto none, ParseCodec("none"));
  LH_ASSIGN_OR_RETURN(const Encoded wide, EncodeArray(*none, fp32, {}));
  return DecodeArray(*none, wide.bytes(), shape, dtype);
}

}  // namespace longhaul::codec
