#include "transport/replicas/dense.h"

namespace longhaul::replicas {

namespace sdp4bit = codec::sdp4bit;

GradientForm DenseForm(const GradientOptions& gradients) {
  if (gradients.form == GradientForm::kTagc) return GradientForm::kBf16;
  if (gradients.form == GradientForm::kLocalSgd) return GradientForm::kSdp4bit;
  return gradients.form;
}

uint64_t GradientBytes(GradientForm form, const Piece& piece) {
  switch (form) {
    case GradientForm::kFp32:
      return 4 * piece.count;
    case GradientForm::kSdp4bit:
      return sdp4bit::SectionBytes(sdp4bit::Transformed(piece.count), sdp4bit::kGradientGroup);
    default:
      return 2 * piece.count;
  }
}

uint64_t ParameterBytes(ParameterForm form, const Piece& piece) {
  switch (form) {
    case ParameterForm::kFp32:
      return 4 * piece.count;
    case ParameterForm::kBf16:
      return 2 * piece.count;
    default:
      return sdp4bit::SectionBytes(piece.count, sdp4bit::kDifferenceGroup);
  }
}

uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += GradientBytes(form, piece);
  return bytes;
}

uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += ParameterBytes(form, piece);
  return bytes;
}

}  // namespace longhaul::replicas
