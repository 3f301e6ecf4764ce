#include "codec/tool/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "codec/blob.h"
#include "codec/fixed/format.h"
#include "codec/gauss/format.h"
#include "codec/registry.h"
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

std::vector<Section> SectionsOf(const BlobHeader& header, uint64_t file_bytes) {
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
  // A header may announce a tensor that is far larger than the file; nothing is allocated before
  // the two agree.
  if (!(*codec)->fixed_size() || (*codec)->MaxEncodedBytes(header->shape) != file.bytes().size()) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: a blob of {} with its shape has {} bytes; the file has {}", options.input,
        (*codec)->name(), (*codec)->MaxEncodedBytes(header->shape), file.bytes().size()));
  }
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
  const uint64_t expected = (*codec)->MaxEncodedBytes(shape);
  if (bytes != expected) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a blob of {} with its shape has {} bytes; the file has {}", options.input,
                    (*codec)->name(), expected, bytes));
  }
  const std::vector<Section> sections = SectionsOf(*header, bytes);
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
  LH_ASSIGN_OR_RETURN(const Errors errors, MeasureCodec(*codec, array, context));
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
