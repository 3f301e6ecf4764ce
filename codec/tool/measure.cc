#include "codec/tool/measure.h"

#include <cmath>

#include "codec/registry.h"
#include "codec/tool/files.h"

namespace longhaul::codec {

double BitsPerElement(size_t bytes, const Shape& shape) {
  const uint64_t elements = shape.elements();
  return elements == 0 ? 0 : static_cast<double>(bytes) * 8 / static_cast<double>(elements);
}

Errors CompareArrays(std::span<const float> expected, std::span<const float> got) {
  double error = 0;
  double norm = 0;
  double other_norm = 0;
  double dot = 0;
  Errors errors;
  for (size_t k = 0; k < expected.size(); ++k) {
    const double a = expected[k];
    const double b = got[k];
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    error += (a - b) * (a - b);
    norm += a * a;
    other_norm += b * b;
    dot += a * b;
    ++errors.compared;
  }
  if (errors.compared > 0) errors.mse = error / static_cast<double>(errors.compared);
  errors.relative_l2 = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  errors.cosine = norm > 0 && other_norm > 0 ? dot / std::sqrt(norm) / std::sqrt(other_norm)
                  : norm == other_norm       ? 1.0
                                             : 0.0;
  return errors;
}

std::span<const float> Floats(const NpyArray& array) {
  return {reinterpret_cast<const float*>(array.data.span().data()), array.shape.elements()};
}

// Any array as fp32, exactly.
StatusOr<NpyArray> Widen(const NpyArray& array) {
  LH_ASSIGN_OR_RETURN(const auto none, ParseCodec("none"));
  LH_ASSIGN_OR_RETURN(const Encoded encoded, EncodeArray(*none, array, {}));
  return DecodeArray(*none, encoded.bytes(), array.shape, Dtype::kF32);
}

StatusOr<BothEnds> OpenCodec(const std::string& text, const python::Host* host) {
  LH_ASSIGN_OR_RETURN(auto parsed, ParseCodec(text));
  const std::shared_ptr<const Codec> codec = std::move(parsed);
  BothEnds ends;
  LH_ASSIGN_OR_RETURN(ends.sender, python::Ready(host, codec));
  LH_ASSIGN_OR_RETURN(ends.receiver, python::Ready(host, codec));
  return ends;
}

StatusOr<Errors> MeasureCodec(const BothEnds& codec, const NpyArray& array, const Context& context,
                              const Context& of_receiver) {
  LH_ASSIGN_OR_RETURN(const Encoded encoded, EncodeArray(*codec.sender, array, context));
  LH_ASSIGN_OR_RETURN(const NpyArray decoded, DecodeArray(*codec.receiver, encoded.bytes(),
                                                          array.shape, Dtype::kF32, of_receiver));
  LH_ASSIGN_OR_RETURN(const NpyArray original, Widen(array));
  Errors errors = CompareArrays(Floats(original), Floats(decoded));
  errors.bits_per_element = BitsPerElement(encoded.result.bytes, array.shape);
  errors.nonfinite_tiles = encoded.result.nonfinite_tiles;
  return errors;
}

}  // namespace longhaul::codec
