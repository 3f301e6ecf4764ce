#include "codec/aqsgd/factory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "codec/aqsgd/cpu/kernels.h"
#include "codec/aqsgd/records.h"
#include "codec/arguments.h"
#include "codec/tile.h"

namespace longhaul::codec::aqsgd {
namespace {

void StoreU64(uint64_t value, std::byte* bytes) {
  std::memcpy(bytes, &value, sizeof(value));
}

int LoadExponent(const std::byte* bytes) {
  return static_cast<int16_t>(LoadU16(bytes));
}

int ExponentOfRecord(std::span<const std::byte> record) {
  return LoadExponent(record.data());
}

const std::byte* ElementsOf(std::span<const std::byte> record) {
  return record.data() + kRecordHeaderBytes;
}

// Makes a whole body the record.
void Remember(int exponent, const std::byte* body, const Shape& shape, std::byte* record) {
  const uint64_t bytes = 2 * uint64_t{shape.tokens} * shape.channels;
  std::memset(record, 0, kRecordHeaderBytes);
  StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)), record);
  std::memcpy(record + kRecordHeaderBytes, body, bytes);
  std::memset(record + kRecordHeaderBytes + bytes, 0, AlignSection(bytes) - bytes);
}

struct Scratch {
  Scratch(const Shape& shape, std::byte* workspace)
      : padded((uint64_t{shape.channels} + kTile - 1) / kTile * kTile),
        scales(reinterpret_cast<float*>(workspace)),
        largest(scales + padded) {}
  static uint64_t Bytes(const Shape& shape) {
    return 2 * sizeof(float) * ((uint64_t{shape.channels} + kTile - 1) / kTile * kTile);
  }
  uint64_t padded;
  float* scales;   // a float for every channel, zeros up to whole tiles
  float* largest;  // of one sample
};

class AqsgdCodec final : public Codec {
 public:
  explicit AqsgdCodec(const Params& params) : params_(params), name_(CodecString(params)) {}

  const std::string& name() const override { return name_; }
  CodecKind kind() const override { return {kId, ToHeader(params_)}; }
  bool fixed_size() const override { return false; }
  size_t MaxEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return kBlobHeaderBytes + (Empty(shape) ? 0 : MaxPayloadBytes(shape, params_));
  }
  size_t MinEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return kBlobHeaderBytes + (Empty(shape) ? 0 : MinPayloadBytes(shape, params_));
  }
  size_t MessageBytes(const Shape& shape) const override { return RecordBytes(shape); }
  size_t WorkspaceBytes(const Shape& shape) const override {
    return Empty(shape) || !CheckShape(shape).ok() ? 0 : AlignWorkspace(Scratch::Bytes(shape));
  }

  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const override;
  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const override;

 private:
  // Kinds, checks and exponents of all samples to `payload`, the scales to the scratch; changes no
  // record. Gives the number of differences.
  uint64_t Decide(const TensorView& in, const Messages& messages, Scratch& scratch,
                  std::byte* payload, uint64_t* nonfinite) const;
  Status WriteBodies(const TensorView& in, const Messages& messages, const Scratch& scratch,
                     bool has_scales, std::byte* payload) const;
  // Everything that can be wrong with a payload. Gives the number of differences.
  StatusOr<uint64_t> CheckPayload(std::span<const std::byte> payload, const Messages& messages,
                                  const Shape& shape) const;
  Status ReadBodies(const std::byte* payload, const Messages& messages, const Scratch& scratch,
                    bool has_scales, const MutableTensorView& out) const;

  Params params_;
  std::string name_;
};

uint64_t AqsgdCodec::Decide(const TensorView& in, const Messages& messages, Scratch& scratch,
                            std::byte* payload, uint64_t* nonfinite) const {
  const Layout layout = MakeLayout(in.shape, params_);
  std::fill_n(scratch.scales, scratch.padded, 0.0f);
  uint64_t differences = 0;
  for (uint64_t index = 0; index < in.shape.samples; ++index) {
    const std::span<const std::byte> record = messages.Read(index);
    const cpu::Magnitudes magnitudes = cpu::Measure({in, index});
    *nonfinite += magnitudes.nonfinite;
    const Kind kind = KindOf(messages.remembers(), magnitudes.nonfinite == 0, !record.empty(),
                             record.empty() ? 0 : ExponentOfRecord(record), magnitudes.largest);
    int exponent = SampleExponent(magnitudes.largest, kTopExponent);
    if (kind == Kind::kDifference) {
      const uint32_t largest = cpu::MeasureDifference({in, index}, ExponentOfRecord(record),
                                                      ElementsOf(record), scratch.largest);
      exponent = DifferenceExponent(largest);
      const float up = Pow2(exponent);
      for (uint64_t channel = 0; channel < in.shape.channels; ++channel) {
        scratch.scales[channel] = std::max(scratch.scales[channel], scratch.largest[channel] * up);
      }
      ++differences;
    }
    const Entry entry = messages.EntryOf(index);
    StoreU64(entry.id, payload + layout.samples + 8 * index);
    StoreU64(entry.check, payload + layout.checks + 8 * index);
    payload[layout.kinds + index] = static_cast<std::byte>(kind);
    StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)),
             payload + layout.exponents + 2 * index);
  }
  if (differences == 0) return 0;
  const auto top = static_cast<float>((1 << (params_.bits - 1)) - 1);
  for (uint64_t channel = 0; channel < in.shape.channels; ++channel) {
    const uint16_t stored = F32ToF16(scratch.scales[channel] / top);
    StoreU16(stored, payload + layout.variable + 2 * channel);
    scratch.scales[channel] = F16ToF32(stored);
  }
  return differences;
}

Status AqsgdCodec::WriteBodies(const TensorView& in, const Messages& messages,
                               const Scratch& scratch, bool has_scales, std::byte* payload) const {
  const Layout layout = MakeLayout(in.shape, params_);
  std::byte* body = payload + layout.variable + (has_scales ? layout.scales_bytes : 0);
  for (uint64_t index = 0; index < in.shape.samples; ++index) {
    const auto kind = static_cast<Kind>(payload[layout.kinds + index]);
    const int exponent = LoadExponent(payload + layout.exponents + 2 * index);
    std::byte* record = nullptr;
    if (kind != Kind::kTransient) {
      LH_ASSIGN_OR_RETURN(record, messages.Write(index));
    }
    if (kind == Kind::kDifference) {
      const std::span<const std::byte> message = messages.Read(index);
      cpu::EncodeDifference({in, index}, ExponentOfRecord(message), exponent, params_,
                            scratch.scales, ElementsOf(message),
                            record == nullptr ? nullptr : record + kRecordHeaderBytes, body);
      body += layout.difference_bytes;
    } else {
      cpu::EncodeWhole({in, index}, exponent, body);
      if (record != nullptr) Remember(exponent, body, in.shape, record);
      body += layout.whole_bytes;
    }
  }
  return absl::OkStatus();
}

Status AqsgdCodec::Encode(const TensorView& in, const Context& context,
                          std::span<std::byte> workspace, std::span<std::byte> out,
                          EncodeResult* result) const {
  LH_ASSIGN_OR_RETURN(BlobHeader header, BeginEncode(*this, in, workspace, out, result));
  if (!Empty(in.shape)) {
    const Messages messages(context);
    LH_RETURN_IF_ERROR(messages.Check(in.shape));
    std::byte* const payload = out.data() + kBlobHeaderBytes;
    const Layout layout = MakeLayout(in.shape, params_);
    std::memset(payload, 0, layout.variable + layout.scales_bytes);  // the sections' paddings
    Scratch scratch(in.shape, workspace.data());
    const uint64_t differences = Decide(in, messages, scratch, payload, &header.nonfinite_tiles);
    LH_RETURN_IF_ERROR(WriteBodies(in, messages, scratch, differences > 0, payload));
    header.payload_bytes = PayloadBytes(in.shape, params_, differences);
  }
  FinishEncode(header, out, result);
  return absl::OkStatus();
}

StatusOr<uint64_t> AqsgdCodec::CheckPayload(std::span<const std::byte> payload,
                                            const Messages& messages, const Shape& shape) const {
  const Layout layout = MakeLayout(shape, params_);
  LH_ASSIGN_OR_RETURN(const uint64_t differences,
                      CheckSize(payload, payload.size(), shape, params_));
  const std::byte* body = payload.data() + layout.variable;
  if (differences > 0) {
    for (uint64_t channel = 0; channel < shape.channels; ++channel) {
      if (LoadU16(body + 2 * channel) <= kLargestHalfBits) continue;
      return absl::InvalidArgumentError("a channel's scale in the blob is negative or not finite");
    }
    body += layout.scales_bytes;
  }
  for (uint64_t index = 0; index < shape.samples; ++index) {
    LH_RETURN_IF_ERROR(
        CheckSample(payload, index, messages.EntryOf(index), messages.remembers(), layout));
    const Kind kind = KindIn(payload, layout, index);
    if (kind == Kind::kStored && !cpu::AllFinite(body, uint64_t{shape.tokens} * shape.channels)) {
      return absl::InvalidArgumentError(
          "a sample that is to be remembered has elements that are not finite");
    }
    body += kind == Kind::kDifference ? layout.difference_bytes : layout.whole_bytes;
  }
  return differences;
}

Status AqsgdCodec::ReadBodies(const std::byte* payload, const Messages& messages,
                              const Scratch& scratch, bool has_scales,
                              const MutableTensorView& out) const {
  const Layout layout = MakeLayout(out.shape, params_);
  const std::byte* body = payload + layout.variable + (has_scales ? layout.scales_bytes : 0);
  for (uint64_t index = 0; index < out.shape.samples; ++index) {
    const auto kind = static_cast<Kind>(payload[layout.kinds + index]);
    const int exponent = LoadExponent(payload + layout.exponents + 2 * index);
    std::byte* record = nullptr;
    if (kind != Kind::kTransient) {
      LH_ASSIGN_OR_RETURN(record, messages.Write(index));
    }
    if (kind == Kind::kDifference) {
      const std::span<const std::byte> message = messages.Read(index);
      cpu::DecodeDifference(body, ExponentOfRecord(message), exponent, params_, scratch.scales,
                            ElementsOf(message),
                            record == nullptr ? nullptr : record + kRecordHeaderBytes, index, out);
      body += layout.difference_bytes;
    } else {
      cpu::DecodeWhole(body, exponent, index, out);
      if (record != nullptr) Remember(exponent, body, out.shape, record);
      body += layout.whole_bytes;
    }
  }
  return absl::OkStatus();
}

Status AqsgdCodec::Decode(std::span<const std::byte> blob, const Context& context,
                          std::span<std::byte> workspace, const MutableTensorView& out) const {
  LH_ASSIGN_OR_RETURN(const BlobHeader header, BeginDecode(*this, blob, workspace, out));
  if (Empty(out.shape)) return CheckEmptyBlob(header);
  const Messages messages(context);
  LH_RETURN_IF_ERROR(messages.Check(out.shape));
  const std::span<const std::byte> payload = blob.subspan(kBlobHeaderBytes);
  LH_ASSIGN_OR_RETURN(const uint64_t differences, CheckPayload(payload, messages, out.shape));
  const std::byte* const scales = payload.data() + MakeLayout(out.shape, params_).variable;
  const Scratch scratch(out.shape, workspace.data());
  std::fill_n(scratch.scales, scratch.padded, 0.0f);
  for (uint64_t channel = 0; differences > 0 && channel < out.shape.channels; ++channel) {
    scratch.scales[channel] = F16ToF32(LoadU16(scales + 2 * channel));
  }
  return ReadBodies(payload.data(), messages, scratch, differences > 0, out);
}

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    if (!ParseUnsigned(value, &params.bits) || params.bits < kMinBits || params.bits > kMaxBits) {
      return OutOfRange(text, key);
    }
  }
  return Create(params);
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> payload) {
  const StatusOr<Params> params = FromHeader(header.parameters);
  if (!params.ok()) return {};
  const Layout layout = MakeLayout(header.shape, *params);
  const auto kinds = payload.subspan(layout.kinds, header.shape.samples);
  const bool scales =
      std::ranges::find(kinds, static_cast<std::byte>(Kind::kDifference)) != kinds.end();
  std::vector<Section> sections = {{"samples", layout.samples},
                                   {"checks", layout.checks},
                                   {"kinds", layout.kinds},
                                   {"exponents", layout.exponents}};
  if (scales) sections.push_back({"scales", layout.variable});
  sections.push_back({"bodies", layout.variable + (scales ? layout.scales_bytes : 0)});
  return sections;
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<AqsgdCodec>(params);
}

Family Row() {
  return {.id = kId,
          .name = "aqsgd",
          .what = "AQ-SGD: differences to what was sent of the sample before; runs only",
          .parameters = {{"bits", "2..8", "4"}},
          .parse = Parse,
          .from_header = FromParameters<FromHeader, Create>,
          .sections = Sections,
          .device = MakeDevice};
}

}  // namespace longhaul::codec::aqsgd
