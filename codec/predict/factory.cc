#include "codec/predict/factory.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "codec/arguments.h"
#include "codec/predict/context.h"
#include "codec/predict/cpu/kernels.h"
#include "codec/predict/cpu/learn.h"
#include "codec/registry.h"
#include "codec/simd/elements.h"

namespace longhaul::codec::predict {
namespace {

uint64_t TokensOf(const Shape& shape) {
  return uint64_t{shape.samples} * shape.tokens;
}

// A workspace: r, r' and x' one after the other; what learning needs; the other codec's.
struct Scratch {
  Scratch(const Shape& shape, std::byte* workspace)
      : values(reinterpret_cast<float*>(workspace)),
        keys(reinterpret_cast<uint64_t*>(workspace + Values(shape))),
        ids(reinterpret_cast<uint32_t*>(keys + TokensOf(shape))),
        sums(reinterpret_cast<float*>(ids + TokensOf(shape))),
        teaches(reinterpret_cast<uint8_t*>(sums + cpu::SumsFor(shape.channels))),
        rest(workspace + Bytes(shape)) {}
  static uint64_t Values(const Shape& shape) {
    return AlignWorkspace(shape.elements() * sizeof(float));
  }
  static uint64_t Bytes(const Shape& shape) {
    constexpr uint64_t kOfAToken = sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint8_t);
    return Values(shape) + AlignWorkspace(TokensOf(shape) * kOfAToken +
                                          cpu::SumsFor(shape.channels) * sizeof(float));
  }
  float* values;
  uint64_t* keys;
  uint32_t* ids;
  float* sums;
  uint8_t* teaches;
  std::byte* rest;
};

class PredictCodec final : public Codec {
 public:
  PredictCodec(const Params& params, std::shared_ptr<const Codec> other)
      : params_(params),
        other_(std::move(other)),
        parameters_(ToHeader(params, other_->kind().id)),
        name_(CodecString(params) + "/" + other_->name()) {}

  const std::string& name() const override { return name_; }
  CodecKind kind() const override { return {kId, parameters_}; }
  const std::shared_ptr<const Codec>& other() const { return other_; }
  bool fixed_size() const override { return false; }
  size_t MaxEncodedBytes(const Shape& shape) const override {
    return Around(shape, 4, other_->MaxEncodedBytes(shape));
  }
  size_t MinEncodedBytes(const Shape& shape) const override {
    return Around(shape, 0, other_->MinEncodedBytes(shape));
  }
  size_t UsualEncodedBytes(const Shape& shape) const override {
    return Around(shape, 2, other_->UsualEncodedBytes(shape));
  }
  size_t WorkspaceBytes(const Shape& shape) const override {
    if (Empty(shape) || !CheckShape(shape).ok()) return 0;
    return Scratch::Bytes(shape) + other_->WorkspaceBytes(shape);
  }
  uint64_t TableRows(uint32_t vocabulary) const override {
    return uint64_t{vocabulary} + params_.pairs();
  }

  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const override;
  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const override;

 private:
  size_t Around(const Shape& shape, uint32_t id_bytes, size_t other) const {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return Empty(shape) ? kBlobHeaderBytes
                        : kBlobHeaderBytes + OtherOffset(shape, id_bytes) + other;
  }
  std::span<std::byte> WorkspaceWithin(const Shape& shape, const Scratch& scratch) const {
    return {scratch.rest, other_->WorkspaceBytes(shape)};
  }
  cpu::PredictingRows RowsOf(const Tables& tables, std::span<const uint32_t> ids,
                             const Shape& shape, uint64_t token) const {
    cpu::PredictingRows rows{.mean = tables.mean(), .token = tables.Row(ids[token])};
    if (params_.log2_pairs > 0) {
      rows.pair =
          tables.Row(uint64_t{tables.shape().vocabulary} + cpu::PairOf(ids, shape, params_, token));
    }
    return rows;
  }
  // r' at `values` becomes x', which teaches where the context says so.
  void Finish(const Context& context, const Shape& shape, const Scratch& scratch,
              float* values) const;
  Status EncodeWithin(const TensorView& in, const Context& context, const Scratch& scratch,
                      std::span<std::byte> out, EncodeResult* result) const;

  const Params params_;
  const std::shared_ptr<const Codec> other_;
  const CodecParameters parameters_;
  const std::string name_;
};

void PredictCodec::Finish(const Context& context, const Shape& shape, const Scratch& scratch,
                          float* values) const {
  const std::span<const uint32_t> ids(scratch.ids, TokensOf(shape));
  for (uint64_t token = 0; token < ids.size(); ++token) {
    scratch.teaches[token] = cpu::AddBack(RowsOf(*context.tables, ids, shape, token),
                                          shape.channels, values + token * shape.channels)
                                 ? 1
                                 : 0;
  }
  if (!context.learns) return;
  cpu::Learn({shape, params_, ids, values, {scratch.teaches, ids.size()}},
             {scratch.keys, ids.size()}, scratch.sums, context.tables);
}

// The blob of the other codec, to `out`.
Status PredictCodec::EncodeWithin(const TensorView& in, const Context& context,
                                  const Scratch& scratch, std::span<std::byte> out,
                                  EncodeResult* result) const {
  const std::span<std::byte> workspace = WorkspaceWithin(in.shape, scratch);
  const Context within = ContextWithin(context);
  if (context.tables == nullptr) return other_->Encode(in, within, workspace, out, result);
  const std::span<const uint32_t> ids(scratch.ids, TokensOf(in.shape));
  const size_t channels = in.shape.channels;
  for (uint64_t token = 0; token < ids.size(); ++token) {
    float* const values = scratch.values + token * channels;
    LoadElements(in, token * channels, channels, channels, values);
    cpu::Subtract(RowsOf(*context.tables, ids, in.shape, token), channels, values);
  }
  const MutableTensorView residual{scratch.values, Dtype::kF32, in.shape};
  LH_RETURN_IF_ERROR(other_->Encode({residual.data, residual.dtype, residual.shape}, within,
                                    workspace, out, result));
  if (!context.learns) return absl::OkStatus();
  LH_RETURN_IF_ERROR(other_->Decode(out.first(result->bytes), within, workspace, residual));
  Finish(context, in.shape, scratch, scratch.values);
  return absl::OkStatus();
}

Status PredictCodec::Encode(const TensorView& in, const Context& context,
                            std::span<std::byte> workspace, std::span<std::byte> out,
                            EncodeResult* result) const {
  LH_ASSIGN_OR_RETURN(BlobHeader header, BeginEncode(*this, in, workspace, out, result));
  if (!Empty(in.shape)) {
    const TablesShape* const tables = context.tables ? &context.tables->shape() : nullptr;
    LH_RETURN_IF_ERROR(CheckContext(context, tables, params_, in.shape, /*decodes=*/false));
    const Front front =
        ExpectedFront(tables, context.learns, context.tables ? context.tables->check() : 0);
    const Scratch scratch(in.shape, workspace.data());
    std::ranges::copy(context.token_ids, scratch.ids);
    const std::span<std::byte> payload = out.subspan(kBlobHeaderBytes);
    WriteFront(front, payload.data());
    WriteIds(context.token_ids, front.id_bytes, &payload[kFrontBytes]);
    const uint64_t other = OtherOffset(in.shape, front.id_bytes);
    EncodeResult within;
    LH_RETURN_IF_ERROR(EncodeWithin(in, context, scratch, payload.subspan(other), &within));
    header.payload_bytes = other + within.bytes;
    header.nonfinite_tiles = within.nonfinite_tiles;
  }
  FinishEncode(header, out, result);
  return absl::OkStatus();
}

Status PredictCodec::Decode(std::span<const std::byte> blob, const Context& context,
                            std::span<std::byte> workspace, const MutableTensorView& out) const {
  const Shape& shape = out.shape;
  LH_ASSIGN_OR_RETURN(const BlobHeader header, BeginDecode(*this, blob, workspace, out));
  if (Empty(shape)) return CheckEmptyBlob(header);
  const TablesShape* const tables = context.tables ? &context.tables->shape() : nullptr;
  LH_RETURN_IF_ERROR(CheckContext(context, tables, params_, shape, /*decodes=*/true));
  const std::span<const std::byte> payload = blob.subspan(kBlobHeaderBytes);
  LH_ASSIGN_OR_RETURN(const Front front, ReadFront(payload, shape));
  LH_RETURN_IF_ERROR(CheckFront(
      front, ExpectedFront(tables, context.learns, context.tables ? context.tables->check() : 0)));
  const Scratch scratch(shape, workspace.data());
  if (tables != nullptr) {
    for (uint64_t k = 0; k < TokensOf(shape); ++k) {
      scratch.ids[k] = IdAt(&payload[kFrontBytes], front.id_bytes, k);
      if (!context.token_ids.empty() && context.token_ids[k] != scratch.ids[k]) {
        return InvalidArgument("expected token {} at place {} of the tensor; the blob has {}",
                               context.token_ids[k], k, scratch.ids[k]);
      }
    }
    LH_RETURN_IF_ERROR(CheckIds({scratch.ids, TokensOf(shape)}, tables->vocabulary));
  }
  const std::span<const std::byte> within = payload.subspan(OtherOffset(shape, front.id_bytes));
  LH_ASSIGN_OR_RETURN(const BlobHeader header_within, ReadOther(within));
  if (header_within.source_dtype != DtypeWithin(front.kind, header.source_dtype)) {
    return InvalidArgument(
        "the blob within a blob of predict is of a tensor of {}, which it cannot be",
        ToString(header_within.source_dtype));
  }
  const bool direct = tables == nullptr || out.dtype == Dtype::kF32;
  const MutableTensorView target =
      direct ? out : MutableTensorView{scratch.values, Dtype::kF32, shape};
  LH_RETURN_IF_ERROR(
      other_->Decode(within, ContextWithin(context), WorkspaceWithin(shape, scratch), target));
  if (tables == nullptr) return absl::OkStatus();
  auto* const values = static_cast<float*>(target.data);
  Finish(context, shape, scratch, values);
  if (!direct) StoreElements(out, 0, shape.elements(), values);
  return absl::OkStatus();
}

bool ParsePairs(const std::string& text, uint32_t* log2_pairs) {
  uint32_t pairs = 0;
  if (!ParseUnsigned(text, &pairs) || pairs == 1 || (pairs != 0 && !std::has_single_bit(pairs))) {
    return false;
  }
  *log2_pairs = pairs == 0 ? 0 : static_cast<uint32_t>(std::bit_width(pairs)) - 1;
  return true;
}

StatusOr<CodecPtr> Over(const Params& params, CodecPtr other) {
  if (!other->remembers_samples() && !other->predicts_by_tokens()) {
    return Create(params, std::move(other));
  }
  return InvalidArgument("expected a codec without state after predict's '/', got '{}'",
                         other->name());
}

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    double rate = params.rate;
    const bool parsed = key == "pairs"   ? ParsePairs(value, &params.log2_pairs)
                        : key == "prior" ? ParseUnsigned(value, &params.prior)
                                         : ParseReal(value, &rate);
    params.rate = static_cast<float>(rate);
    if (!parsed || !Possible(params)) return OutOfRange(text, key);
  }
  if (text.other.substr(0, text.other.find_first_of(":/")) == text.name) {
    return InvalidArgument("'{}/{}': predict does not code the differences of predict", text.text,
                           text.other);
  }
  LH_ASSIGN_OR_RETURN(CodecPtr other, ParseCodec(text.other));
  if (FindFamily(other->kind().id)->names_class) {
    return InvalidArgument("'{}/{}': predict does not code its differences by a class of Python",
                           text.text, text.other);
  }
  return Over(params, std::move(other));
}

StatusOr<CodecPtr> FromPayload(const BlobHeader& header, std::span<const std::byte> payload) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(header.parameters));
  LH_ASSIGN_OR_RETURN(const Front front, ReadFront(payload, header.shape));
  LH_ASSIGN_OR_RETURN(const BlobHeader within,
                      ReadOther(payload.subspan(OtherOffset(header.shape, front.id_bytes))));
  if (within.codec != OtherCodec(header.parameters) || within.codec == header.codec) {
    return InvalidArgument(
        "a blob of predict with one of {} within, which its header does not announce",
        ToString(within.codec));
  }
  LH_ASSIGN_OR_RETURN(CodecPtr other, CodecOfHeader(within));
  return Over(params, std::move(other));
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> payload) {
  const StatusOr<Front> front = ReadFront(payload, header.shape);
  if (!front.ok()) return {};
  return {{"front", 0}, {"ids", kFrontBytes}, {"blob", OtherOffset(header.shape, front->id_bytes)}};
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params, std::shared_ptr<const Codec> other) {
  return std::make_unique<PredictCodec>(params, std::move(other));
}

const std::shared_ptr<const Codec>& OtherOf(const Codec& codec) {
  return static_cast<const PredictCodec&>(codec).other();
}

Family Row() {
  return {
      .id = kId,
      .name = "predict",
      .what = "differences to what tokens predict, coded by what follows a '/' (gauss); runs only",
      .parameters = {{"pairs", "0 or a power of two up to 1048576", "0"},
                     {"rate", "0..1", "0.05"},
                     {"prior", "0..1000", "4"}},
      .parse = Parse,
      .sections = Sections,
      .device = MakeDevice,
      // The errors of gauss itself: values without tokens teach nothing.
      .for_activations = {{"predict:pairs=0,rate=0.05,prior=4/gauss:bits=6,block=128", 0.0253},
                          {"predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128", 0.0498},
                          {"predict:pairs=0,rate=0.05,prior=4/gauss:bits=4,block=128", 0.098},
                          {"predict:pairs=0,rate=0.05,prior=4/gauss:bits=3,block=128", 0.187},
                          {"predict:pairs=0,rate=0.05,prior=4/gauss:bits=2,block=128", 0.344}},
      .other = "gauss",
      .from_payload = FromPayload};
}

}  // namespace longhaul::codec::predict
