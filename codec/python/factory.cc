#include "codec/python/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "codec/arguments.h"
#include "codec/python/host.h"
#include "codec/python/process.h"
#include "codec/registry.h"
#include "codec/simd/elements.h"

namespace longhaul::codec::python {
namespace {

class PythonCodec final : public Codec {
 public:
  // `process`: null for a codec that only knows its sizes.
  PythonCodec(const Params& params, std::unique_ptr<Process> process)
      : params_(params),
        name_(CodecString(params)),
        parameters_(ToHeader(name_)),
        process_(std::move(process)) {}

  const Params& params() const { return params_; }
  const std::string& name() const override { return name_; }
  CodecKind kind() const override { return {kId, parameters_}; }
  bool fixed_size() const override { return false; }
  size_t MaxEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return kBlobHeaderBytes +
           (Empty(shape) ? 0 : NameBytes(name_) + MostBodyBytes(shape, params_.bits));
  }
  size_t MinEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return kBlobHeaderBytes + (Empty(shape) ? 0 : NameBytes(name_));
  }
  // The elements as fp32.
  size_t WorkspaceBytes(const Shape& shape) const override {
    if (Empty(shape) || !CheckShape(shape).ok()) return 0;
    return AlignWorkspace(shape.elements() * sizeof(float));
  }

  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const override;
  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const override;

 private:
  Status CheckRuns() const {
    if (process_ != nullptr) return absl::OkStatus();
    return FailedPrecondition(
        "{}: this command runs no Python; workers do, with --python-codec {}, and longhaul-codec "
        "errors, error, encode and bench",
        name_, params_.module);
  }
  static std::span<float> Elements(const Shape& shape, std::span<std::byte> workspace) {
    return {reinterpret_cast<float*>(workspace.data()), shape.elements()};
  }

  const Params params_;
  const std::string name_;
  const CodecParameters parameters_;
  const std::unique_ptr<Process> process_;
};

Status PythonCodec::Encode(const TensorView& in, const Context& context,
                           std::span<std::byte> workspace, std::span<std::byte> out,
                           EncodeResult* result) const {
  LH_ASSIGN_OR_RETURN(BlobHeader header, BeginEncode(*this, in, workspace, out, result));
  if (!Empty(in.shape)) {
    LH_RETURN_IF_ERROR(CheckRuns());
    const std::span<float> elements = Elements(in.shape, workspace);
    LoadElements(in, 0, elements.size(), elements.size(), elements.data());
    header.nonfinite_tiles = static_cast<uint64_t>(
        std::ranges::count_if(elements, [](float value) { return !std::isfinite(value); }));
    const std::span<std::byte> payload = out.subspan(kBlobHeaderBytes);
    const uint64_t before = NameBytes(name_);
    WriteName(name_, payload.data());
    size_t bytes = 0;
    LH_RETURN_IF_ERROR(
        process_->Encode(elements, in.shape, context,
                         payload.subspan(before, MostBodyBytes(in.shape, params_.bits)), &bytes));
    header.payload_bytes = before + bytes;
  }
  FinishEncode(header, out, result);
  return absl::OkStatus();
}

Status PythonCodec::Decode(std::span<const std::byte> blob, const Context& context,
                           std::span<std::byte> workspace, const MutableTensorView& out) const {
  LH_ASSIGN_OR_RETURN(const BlobHeader header, BeginDecode(*this, blob, workspace, out));
  if (Empty(out.shape)) return CheckEmptyBlob(header);
  if (blob.size() > MaxEncodedBytes(out.shape)) {
    return InvalidArgument("a blob of {} with this shape has at most {} bytes; {} came", name_,
                           MaxEncodedBytes(out.shape), blob.size());
  }
  const std::span<const std::byte> payload = blob.subspan(kBlobHeaderBytes);
  if (!HasName(name_, payload)) {
    return InvalidArgument("expected a blob that names {}; it names another codec, or none", name_);
  }
  LH_RETURN_IF_ERROR(CheckRuns());
  const std::span<float> elements = Elements(out.shape, workspace);
  LH_RETURN_IF_ERROR(
      process_->Decode(payload.subspan(NameBytes(name_)), out.shape, context, elements));
  StoreElements(out, 0, elements.size(), elements.data());
  return absl::OkStatus();
}

bool IsWord(std::string_view text, bool dots) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::ranges::all_of(text, [dots](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (dots && c == '.');
  });
}

bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    if (key == "class") {
      const size_t colon = value.find(':');
      params.module = value.substr(0, colon);
      if (colon != std::string::npos) params.name = value.substr(colon + 1);
    } else if (key == "bits") {
      if (!ParseReal(value, &params.bits) || !(params.bits > 0) || params.bits > kMostBits) {
        return OutOfRange(text, key);
      }
    } else if (!IsWord(key, /*dots=*/false) || !IsPlain(value)) {
      return InvalidArgument(
          "'{}': expected arguments of the class as name=value, without spaces, got '{}={}'",
          text.text, key, value);
    } else {
      params.arguments.emplace(key, value);
    }
  }
  if (!IsWord(params.module, /*dots=*/true) || !IsWord(params.name, /*dots=*/false)) {
    return InvalidArgument(
        "'{}': expected python:MODULE:CLASS, such as python:my_codec:TopK or "
        "python:my_codec:TopK,bits=6",
        text.text);
  }
  if (const std::string name = CodecString(params); name.size() > kLongestName) {
    return InvalidArgument("expected a codec string of at most {} bytes, got {}: {}", kLongestName,
                           name.size(), name);
  }
  return Create(params);
}

StatusOr<CodecPtr> FromPayload(const BlobHeader& header, std::span<const std::byte> payload) {
  if (Empty(header.shape)) {
    return absl::InvalidArgumentError("a blob of python without elements does not name its class");
  }
  LH_ASSIGN_OR_RETURN(const std::string name, ReadName(payload));
  LH_ASSIGN_OR_RETURN(CodecPtr codec, ParseCodec(name));
  if (codec->name() == name && codec->kind() == CodecKind{kId, header.parameters}) return codec;
  return InvalidArgument("a blob of python with the codec string '{}', which its header has not",
                         name);
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> payload) {
  const StatusOr<std::string> name = ReadName(payload);
  if (Empty(header.shape) || !name.ok()) return {};
  return {{"name", 0}, {"body", NameBytes(*name)}};
}

std::vector<std::string> CommandOf(const HostOptions& options, const Params& params) {
  // -B: no folder __pycache__ beside the user's file.
  std::vector<std::string> command = {options.python, "-B", options.main, params.module,
                                      params.name};
  for (const auto& [key, value] : params.arguments) {
    command.push_back(fmt::format("{}={}", key, value));
  }
  return command;
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<PythonCodec>(params, nullptr);
}

std::string ModuleOf(const Codec& codec) {
  if (codec.kind().id != kId) return "";
  return static_cast<const PythonCodec&>(codec).params().module;
}

StatusOr<std::shared_ptr<const Codec>> Ready(const Host* host, std::shared_ptr<const Codec> codec) {
  if (codec->kind().id != kId) return codec;
  const Params& params = static_cast<const PythonCodec&>(*codec).params();
  const std::vector<std::string> none;
  const std::vector<std::string>& modules = host == nullptr ? none : host->options().modules;
  if (host == nullptr || std::ranges::find(modules, params.module) == modules.end()) {
    return FailedPrecondition(
        "{}: the module {} of Python may not run here ({}); start this program with "
        "--python-codec {}, or choose another codec",
        codec->name(), params.module,
        modules.empty() ? "none may" : fmt::format("permitted: {}", fmt::join(modules, ", ")),
        params.module);
  }
  const HostOptions& options = host->options();
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Process> process,
                      Process::Start({.command = CommandOf(options, params),
                                      .name = codec->name(),
                                      .start_limit = options.start_limit,
                                      .call_limit = options.call_limit}));
  return std::make_shared<const PythonCodec>(params, std::move(process));
}

Family Row() {
  return {
      .id = kId,
      .name = "python",
      .what =
          "a class of your own, python:MODULE:CLASS,key=value, for research: slow; workers need "
          "--python-codec",
      .parameters = {{"bits", "above 0 to 64: the most of an element", "32"}},
      .parse = Parse,
      .sections = Sections,
      .names_class = true,
      .from_payload = FromPayload};
}

}  // namespace longhaul::codec::python
