#include "codec/tool/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "codec/aqsgd/format.h"
#include "codec/blob.h"
#include "codec/fixed/format.h"
#include "codec/gauss/format.h"
#include "codec/messages/memory_store.h"
#include "codec/predict/format.h"
#include "codec/registry.h"
#include "codec/taco/format.h"
#include "codec/tah/format.h"
#include "codec/tool/files.h"
#include "codec/tool/measure.h"

namespace longhaul::codec {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(2) + "\n";
}

std::string FormatShape(const Shape& shape) {
  return fmt::format("{} x {} x {}", shape.samples, shape.tokens, shape.channels);
}

struct Section {
  std::string_view name;
  uint64_t offset, end;  // in the file
};

// `blob` is as large as its codec writes blobs of its shape.
std::vector<Section> SectionsOf(const BlobHeader& header, std::span<const std::byte> blob) {
  const uint64_t file_bytes = blob.size();
  std::vector<Section> sections = {{"header", 0, kBlobHeaderBytes}};
  if (header.payload_bytes == 0) return sections;
  std::vector<std::pair<std::string_view, uint64_t>> starts;
  if (header.codec == CodecId::kFixed) {
    if (const auto params = fixed::FromHeader(header.parameters); params.ok()) {
      const fixed::Layout layout = fixed::MakeLayout(header.shape, *params);
      starts = {
          {"exponents", layout.exponents}, {"scales", layout.scales}, {"codes", layout.codes}};
    }
  } else if (header.codec == CodecId::kTah) {
    if (const auto params = tah::FromHeader(header.parameters); params.ok()) {
      const tah::Layout layout = tah::MakeLayout(header.shape, *params);
      starts = {{"exponents", layout.exponents},
                {"scales", layout.scales},
                {"zeros", layout.zeros},
                {"pivots", layout.pivots},
                {"precision", layout.precision},
                {"codes", layout.codes},
                {"fourth bits", layout.fourth_bits}};
    }
  } else if (header.codec == CodecId::kGauss) {
    if (const auto params = gauss::FromHeader(header.parameters); params.ok()) {
      const gauss::Layout layout = gauss::MakeLayout(header.shape, *params);
      starts = {
          {"exponents", layout.exponents}, {"scales", layout.scales}, {"codes", layout.codes}};
    }
  } else if (header.codec == CodecId::kTaco) {
    if (const auto params = taco::FromHeader(header.parameters); params.ok()) {
      starts = {{"scales", 0}, {"codes", taco::MakeLayout(header.shape.elements(), *params).codes}};
    }
  } else if (header.codec == CodecId::kAqsgd) {
    if (const auto params = aqsgd::FromHeader(header.parameters); params.ok()) {
      const aqsgd::Layout layout = aqsgd::MakeLayout(header.shape, *params);
      const auto kinds = blob.subspan(kBlobHeaderBytes + layout.kinds, header.shape.samples);
      const bool scales =
          std::find(kinds.begin(), kinds.end(), static_cast<std::byte>(aqsgd::Kind::kDifference)) !=
          kinds.end();
      starts = {{"samples", layout.samples},
                {"checks", layout.checks},
                {"kinds", layout.kinds},
                {"exponents", layout.exponents}};
      if (scales) starts.emplace_back("scales", layout.variable);
      starts.emplace_back("bodies", layout.variable + (scales ? layout.scales_bytes : 0));
    }
  } else if (header.codec == CodecId::kPredict) {
    if (const auto front = predict::ReadFront(blob.subspan(kBlobHeaderBytes), header.shape);
        front.ok()) {
      starts = {{"front", 0},
                {"ids", predict::kFrontBytes},
                {"blob", predict::OtherOffset(header.shape, front->id_bytes)}};
    }
  } else {
    starts = {{"elements", 0}};
  }
  for (size_t k = 0; k < starts.size(); ++k) {
    const uint64_t end =
        k + 1 < starts.size() ? kBlobHeaderBytes + starts[k + 1].second : file_bytes;
    sections.push_back({starts[k].first, kBlobHeaderBytes + starts[k].second, end});
  }
  return sections;
}

// A header may announce a tensor that is far larger than the file: before anything is allocated,
// the two agree.
Status CheckSize(const Codec& codec, const Shape& shape, uint64_t bytes) {
  const uint64_t least = codec.MinEncodedBytes(shape);
  const uint64_t most = codec.MaxEncodedBytes(shape);
  if (bytes >= least && bytes <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "a blob of {} with its shape has {} bytes; the file has {}", codec.name(),
      least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most), bytes));
}

// What both sides remember then is in the contexts' messages.
Status SendPrevious(const Codec& codec, const ToolOptions& options, const Shape& shape,
                    const Context& sender, const Context& receiver) {
  if (codec.MessageBytes(shape) == 0) {
    return absl::InvalidArgumentError(fmt::format(
        "--previous is for codecs that remember what was sent; {} does not", codec.name()));
  }
  LH_ASSIGN_OR_RETURN(const NpyArray previous,
                      ReadArray(options.previous, options.dtype == Dtype::kBf16));
  if (previous.shape != shape) {
    return absl::InvalidArgumentError(fmt::format("{}: expected a shape of {} as {} has; it has {}",
                                                  options.previous, FormatShape(shape),
                                                  options.input, FormatShape(previous.shape)));
  }
  LH_ASSIGN_OR_RETURN(const Encoded encoded, EncodeArray(codec, previous, sender));
  return DecodeArray(codec, encoded.bytes(), shape, Dtype::kF32, receiver).status();
}

}  // namespace

StatusOr<std::string> EncodeFile(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const auto codec, ParseCodec(options.codec));
  LH_ASSIGN_OR_RETURN(const NpyArray array, ReadInput(options.input, options.dtype));
  Context context;
  context.seed = options.seed;
  LH_ASSIGN_OR_RETURN(const Encoded encoded, EncodeArray(*codec, array, context));
  const std::span<const std::byte> blob = encoded.bytes();
  LH_RETURN_IF_ERROR(
      WriteFileAtomic(options.output, {reinterpret_cast<const char*>(blob.data()), blob.size()}));
  if (options.json) {
    return Dump({{"codec", codec->name()},
                 {"bytes", blob.size()},
                 {"bits_per_element", BitsPerElement(blob.size(), array.shape)},
                 {"nonfinite_tiles", encoded.result.nonfinite_tiles}});
  }
  std::string text =
      fmt::format("{}: {} of {} as {}, {} bytes, {:.3f} bits an element\n", options.output,
                  FormatShape(array.shape), ToString(array.dtype), codec->name(), blob.size(),
                  BitsPerElement(blob.size(), array.shape));
  if (encoded.result.nonfinite_tiles > 0) {
    text += fmt::format("{} tiles have NaN or infinities and decode to NaN\n",
                        encoded.result.nonfinite_tiles);
  }
  return text;
}

StatusOr<std::string> DecodeFile(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(options.input));
  const auto header = ParseBlobHeader(file.bytes());
  if (!header.ok()) return Annotate(header.status(), options.input);
  const auto codec = CodecOfBlob(file.bytes());
  if (!codec.ok()) return Annotate(codec.status(), options.input);
  LH_RETURN_IF_ERROR(
      Annotate(CheckSize(**codec, header->shape, file.bytes().size()), options.input));
  const auto array = DecodeArray(**codec, file.bytes(), header->shape,
                                 options.dtype.value_or(header->source_dtype));
  if (!array.ok()) return Annotate(array.status(), options.input);
  LH_RETURN_IF_ERROR(WriteFileAtomic(options.output, FormatNpy(array->view())));
  if (options.json) {
    return Dump({{"codec", (*codec)->name()},
                 {"dtype", ToString(array->dtype)},
                 {"shape", {array->shape.samples, array->shape.tokens, array->shape.channels}}});
  }
  return fmt::format("{}: {} of {}\n", options.output, FormatShape(array->shape),
                     ToString(array->dtype));
}

StatusOr<std::string> InspectFile(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(options.input));
  const auto header = ParseBlobHeader(file.bytes());
  if (!header.ok()) return Annotate(header.status(), options.input);
  const auto codec = CodecOfBlob(file.bytes());
  if (!codec.ok()) return Annotate(codec.status(), options.input);
  const Shape& shape = header->shape;
  const uint64_t bytes = file.bytes().size();
  LH_RETURN_IF_ERROR(Annotate(CheckSize(**codec, shape, bytes), options.input));
  const std::vector<Section> sections = SectionsOf(*header, file.bytes());
  if (options.json) {
    Json json = {{"codec", (*codec)->name()},
                 {"version", kBlobVersion},
                 {"dtype", ToString(header->source_dtype)},
                 {"shape", {shape.samples, shape.tokens, shape.channels}},
                 {"bytes", bytes},
                 {"bits_per_element", BitsPerElement(bytes, shape)},
                 {"nonfinite_tiles", header->nonfinite_tiles},
                 {"sections", Json::array()}};
    for (const Section& section : sections) {
      json["sections"].push_back({{"name", section.name},
                                  {"offset", section.offset},
                                  {"bytes", section.end - section.offset}});
    }
    return Dump(json);
  }
  std::string text = fmt::format(
      "codec            {}\nversion          {}\nencoded from     {} of {}\nbytes            {} "
      "({:.3f} bits an element)\nnon-finite tiles {}\n\n{:<12} {:>14} {:>14}\n",
      (*codec)->name(), kBlobVersion, FormatShape(shape), ToString(header->source_dtype), bytes,
      BitsPerElement(bytes, shape), header->nonfinite_tiles, "section", "offset", "bytes");
  for (const Section& section : sections) {
    text += fmt::format("{:<12} {:>14} {:>14}\n", section.name, section.offset,
                        section.end - section.offset);
  }
  return text;
}

StatusOr<std::string> MeasureError(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const auto codec, ParseCodec(options.codec));
  LH_ASSIGN_OR_RETURN(const NpyArray array, ReadInput(options.input, options.dtype));
  Context context;
  context.seed = options.seed;
  Context of_receiver;
  MemoryStore sent(array.shape.samples, codec->MessageBytes(array.shape));
  MemoryStore received(array.shape.samples, codec->MessageBytes(array.shape));
  std::vector<uint64_t> samples(array.shape.samples);
  std::iota(samples.begin(), samples.end(), uint64_t{0});
  if (!options.previous.empty()) {
    context.sample_ids = of_receiver.sample_ids = samples;
    context.messages = &sent;
    of_receiver.messages = &received;
    LH_RETURN_IF_ERROR(SendPrevious(*codec, options, array.shape, context, of_receiver));
  }
  LH_ASSIGN_OR_RETURN(const Errors errors, MeasureCodec(*codec, array, context, of_receiver));
  const uint64_t left_out = array.shape.elements() - errors.compared;
  if (options.json) {
    return Dump({{"codec", codec->name()},
                 {"bits_per_element", errors.bits_per_element},
                 {"mse", errors.mse},
                 {"relative_l2", errors.relative_l2},
                 {"cosine", errors.cosine},
                 {"nonfinite_elements", left_out},
                 {"nonfinite_tiles", errors.nonfinite_tiles}});
  }
  std::string text = fmt::format(
      "codec            {}\nbits/element     {:.4f}\nMSE              {:.6g}\nrelative L2      "
      "{:.6g}\ncosine           {:.8f}\n",
      codec->name(), errors.bits_per_element, errors.mse, errors.relative_l2, errors.cosine);
  if (left_out > 0) {
    text += fmt::format("left out         {} elements that are not finite, in {} tiles\n", left_out,
                        errors.nonfinite_tiles);
  }
  return text;
}

}  // namespace longhaul::codec
