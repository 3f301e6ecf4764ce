#include "codec/tool/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "codec/blob.h"
#include "codec/messages/memory_store.h"
#include "codec/registry.h"
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

struct FileSection {
  std::string_view name;
  uint64_t offset, end;  // in the file
};

// `blob` is as large as its codec writes blobs of its shape.
std::vector<FileSection> SectionsOf(const BlobHeader& header, std::span<const std::byte> blob) {
  std::vector<FileSection> sections = {{"header", 0, kBlobHeaderBytes}};
  if (header.payload_bytes == 0) return sections;
  const Family& family = *FindFamily(header.codec);
  std::vector<Section> starts = {{"elements", 0}};
  if (family.sections != nullptr) starts = family.sections(header, blob.subspan(kBlobHeaderBytes));
  for (size_t k = 0; k < starts.size(); ++k) {
    const uint64_t end =
        k + 1 < starts.size() ? kBlobHeaderBytes + starts[k + 1].offset : blob.size();
    sections.push_back({starts[k].name, kBlobHeaderBytes + starts[k].offset, end});
  }
  return sections;
}

// A header may announce a tensor that is far larger than the file: before anything is allocated,
// the two agree.
Status CheckSize(const Codec& codec, const Shape& shape, uint64_t bytes) {
  const uint64_t least = codec.MinEncodedBytes(shape);
  const uint64_t most = codec.MaxEncodedBytes(shape);
  if (bytes >= least && bytes <= most) return absl::OkStatus();
  return InvalidArgument(
      "a blob of {} with its shape has {} bytes; the file has {}", codec.name(),
      least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most), bytes);
}

// What both sides remember then is in the contexts' messages.
Status SendPrevious(const Codec& codec, const ToolOptions& options, const Shape& shape,
                    const Context& sender, const Context& receiver) {
  if (codec.MessageBytes(shape) == 0) {
    return InvalidArgument("--previous is for codecs that remember what was sent; {} does not",
                           codec.name());
  }
  LH_ASSIGN_OR_RETURN(const NpyArray previous,
                      ReadArray(options.previous, options.dtype == Dtype::kBf16));
  if (previous.shape != shape) {
    return InvalidArgument("{}: expected a shape of {} as {} has; it has {}", options.previous,
                           FormatShape(shape), options.input, FormatShape(previous.shape));
  }
  LH_ASSIGN_OR_RETURN(const Encoded encoded, EncodeArray(codec, previous, sender));
  return DecodeArray(codec, encoded.bytes(), shape, Dtype::kF32, receiver).status();
}

}  // namespace

StatusOr<std::string> EncodeFile(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const BothEnds codec, OpenCodec(options.codec, options.python));
  LH_ASSIGN_OR_RETURN(const NpyArray array, ReadInput(options.input, options.dtype));
  Context context;
  context.seed = options.seed;
  LH_ASSIGN_OR_RETURN(const Encoded encoded, EncodeArray(*codec.sender, array, context));
  const std::span<const std::byte> blob = encoded.bytes();
  LH_RETURN_IF_ERROR(
      WriteFileAtomic(options.output, {reinterpret_cast<const char*>(blob.data()), blob.size()}));
  if (options.json) {
    return Dump({{"codec", codec.sender->name()},
                 {"bytes", blob.size()},
                 {"bits_per_element", BitsPerElement(blob.size(), array.shape)},
                 {"nonfinite_tiles", encoded.result.nonfinite_tiles}});
  }
  std::string text =
      fmt::format("{}: {} of {} as {}, {} bytes, {:.3f} bits an element\n", options.output,
                  FormatShape(array.shape), ToString(array.dtype), codec.sender->name(),
                  blob.size(), BitsPerElement(blob.size(), array.shape));
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
  const std::vector<FileSection> sections = SectionsOf(*header, file.bytes());
  if (options.json) {
    Json json = {{"codec", (*codec)->name()},
                 {"version", kBlobVersion},
                 {"dtype", ToString(header->source_dtype)},
                 {"shape", {shape.samples, shape.tokens, shape.channels}},
                 {"bytes", bytes},
                 {"bits_per_element", BitsPerElement(bytes, shape)},
                 {"nonfinite_tiles", header->nonfinite_tiles},
                 {"sections", Json::array()}};
    for (const FileSection& section : sections) {
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
  for (const FileSection& section : sections) {
    text += fmt::format("{:<12} {:>14} {:>14}\n", section.name, section.offset,
                        section.end - section.offset);
  }
  return text;
}

StatusOr<std::string> MeasureError(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const BothEnds ends, OpenCodec(options.codec, options.python));
  const std::shared_ptr<const Codec>& codec = ends.sender;
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
  LH_ASSIGN_OR_RETURN(const Errors errors, MeasureCodec(ends, array, context, of_receiver));
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
