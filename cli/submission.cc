#include "cli/submission.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "cli/find_sets.h"
#include "cli/model_source.h"
#include "cli/progress.h"
#include "cli/samples.h"
#include "proto/rpc/channel.h"
#include "run/data/sample_order.h"
#include "run/published/adapters.h"
#include "run/tokens/pieces.h"
#include "run/tokens/token_file.h"

namespace longhaul::cli {
namespace {

constexpr uint64_t kLargestRunFile = 1 << 20;

constexpr size_t kBlobsAsked = 5000;  // at a time
constexpr int kMostUploadRounds = 5;
constexpr uint64_t kToTheEnd = UINT64_MAX;

// Reads a file, or `limit` bytes of it from `offset` on, in pieces of kChunkBytes; `each` says
// whether to go on.
Status ReadPieces(const std::string& path, uint64_t offset, uint64_t limit,
                  const std::function<StatusOr<bool>(std::string_view piece)>& each) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return FromErrno("cannot read " + path, errno);
  if (std::fseek(file.get(), static_cast<long>(offset), SEEK_SET) != 0) {
    return FromErrno("cannot read " + path, errno);
  }
  std::string buffer(kChunkBytes, '\0');
  while (limit > 0 && std::feof(file.get()) == 0) {
    const size_t bytes =
        std::fread(buffer.data(), 1, std::min<uint64_t>(buffer.size(), limit), file.get());
    if (std::ferror(file.get()) != 0) return FromErrno("cannot read " + path, errno);
    if (bytes == 0) return absl::OkStatus();
    limit -= bytes;
    LH_ASSIGN_OR_RETURN(const bool go_on, each(std::string_view(buffer.data(), bytes)));
    if (!go_on) return absl::OkStatus();
  }
  return absl::OkStatus();
}

// What the coordinator keeps under its hash: a file, a part of one, or a text.
struct Upload {
  std::string sha256;
  uint64_t bytes = 0;
  std::string path;
  uint64_t offset = 0;
  const std::string* text = nullptr;  // instead of a file
};

Status ReadPieces(const Upload& upload,
                  const std::function<StatusOr<bool>(std::string_view piece)>& each) {
  if (upload.text == nullptr) return ReadPieces(upload.path, upload.offset, upload.bytes, each);
  const std::string_view text = *upload.text;
  for (size_t at = 0; at < text.size(); at += kChunkBytes) {
    LH_ASSIGN_OR_RETURN(const bool go_on, each(text.substr(at, kChunkBytes)));
    if (!go_on) break;
  }
  return absl::OkStatus();
}

// The list of data sets, and their chunks.
void AddSetUploads(const Submission& submission, std::vector<Upload>* uploads) {
  uploads->push_back({.sha256 = submission.spec.data.list_sha256,
                      .bytes = submission.mixture_json.size(),
                      .path = {},
                      .offset = 0,
                      .text = &submission.mixture_json});
  if (!submission.spec.data.upload) return;
  for (const data::Source& source : submission.mixture->sources) {
    if (source.at_address()) continue;  // workers ask there themselves
    const auto add = [&](const data::HashedFile& file) {
      const uint64_t size = source.set.chunk_bytes;
      for (uint64_t chunk = 0; chunk < file.ChunkCount(); ++chunk) {
        uploads->push_back({.sha256 = file.ChunkSha256(chunk),
                            .bytes = std::min(size, file.bytes - chunk * size),
                            .path = std::filesystem::path(source.folder) / file.file,
                            .offset = file.offset + chunk * size});
      }
    };
    for (const data::TokenList* list : {&source.set.training, &source.set.validation}) {
      for (const data::Shard& shard : list->shards) {
        add(shard.ids);
        if (shard.mask) add(*shard.mask);
      }
    }
  }
}

std::vector<Upload> UploadsOf(const Submission& submission) {
  std::vector<Upload> uploads;
  for (size_t i = 0; i < submission.paths.size(); ++i) {
    const v1::DataFile& file = submission.request.data_files(static_cast<int>(i));
    uploads.push_back(
        {.sha256 = file.sha256(), .bytes = file.bytes(), .path = submission.paths[i]});
  }
  if (submission.mixture) AddSetUploads(submission, &uploads);
  if (!submission.pieces.empty()) {
    uploads.push_back({.sha256 = submission.spec.samples.pieces_sha256,
                       .bytes = submission.pieces.size(),
                       .path = {},
                       .offset = 0,
                       .text = &submission.pieces});
  }
  if (submission.weights_json.empty()) return uploads;
  uploads.push_back({.sha256 = submission.spec.weights.sha256,
                     .bytes = submission.weights_json.size(),
                     .path = {},
                     .offset = 0,
                     .text = &submission.weights_json});
  if (!submission.spec.weights.upload) return uploads;
  const auto add = [&uploads](const published::Weights& weights, const std::string& folder) {
    for (const published::Tensor& tensor : weights.tensors) {
      if (weights.IsRemote(tensor)) continue;  // workers read at the address
      uploads.push_back({.sha256 = tensor.sha256,
                         .bytes = tensor.bytes,
                         .path = folder + "/" + tensor.file,
                         .offset = tensor.offset});
    }
  };
  add(*submission.weights, submission.spec.weights.from);
  if (submission.adapters) add(*submission.adapters, submission.spec.weights.adapters);
  return uploads;
}

uint64_t TotalBytes(const v1::SubmitRequest& request) {
  uint64_t bytes = 0;
  for (const v1::DataFile& file : request.data_files()) bytes += file.bytes();
  return bytes;
}

Status Send(Client& client, const Upload& upload, const std::function<void(uint64_t bytes)>& sent) {
  Status reading;
  const Status sending =
      client.Call(absl::InfiniteDuration(), [&](grpc::ClientContext& context) -> grpc::Status {
        v1::UploadReply reply;
        const auto writer = client.stub().UploadBlob(&context, &reply);
        v1::UploadChunk chunk;
        chunk.set_sha256(upload.sha256);
        chunk.set_total_bytes(upload.bytes);
        bool open = true;
        if (upload.bytes == 0) open = writer->Write(chunk);
        reading = ReadPieces(upload, [&](std::string_view piece) -> StatusOr<bool> {
          chunk.set_data(std::string(piece));
          open = open && writer->Write(chunk);
          sent(piece.size());
          chunk.clear_sha256();
          return open;
        });
        if (!reading.ok()) context.TryCancel();
        if (open) writer->WritesDone();
        return writer->Finish();
      });
  if (!reading.ok()) return reading;
  return Annotate(sending,
                  "uploading " + (upload.text != nullptr ? "a list of files" : upload.path));
}

// Adds the data that `spec` names to the submission, and says how many bytes of text they have.
StatusOr<uint64_t> AddTexts(const RunSpec& spec, Submission& submission) {
  const std::string folder =
      std::filesystem::path(submission.request.file_name()).parent_path().string();
  if (!spec.data.sets.empty()) {
    LH_ASSIGN_OR_RETURN(submission.mixture, FindSets(spec, folder));
    return 0;
  }
  LH_ASSIGN_OR_RETURN(submission.paths, ExpandDataFiles(spec, folder));
  for (const std::string& path : submission.paths) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return FromErrno("cannot read " + path, errno);
    v1::DataFile* file = submission.request.add_data_files();
    file->set_name(path);
    file->set_bytes(static_cast<uint64_t>(info.st_size));
  }
  return TotalBytes(submission.request);
}

// What the list of the data sets is, for those who do not see their folders.
void FillInSets(Submission& submission) {
  DataSpec& spec = submission.spec.data;
  for (size_t i = 0; i < spec.sets.size(); ++i) {
    spec.sets[i].from = submission.mixture->sources[i].folder;
  }
  submission.mixture_json = data::ToJson(*submission.mixture);
  spec.list_sha256 = Sha256Hex(submission.mixture_json);
  spec.vocabulary = submission.mixture->vocabulary();
  spec.masks = submission.mixture->has_masks();
}

// The prompts' tokens, which no worker can make of them.
Status FillInSamples(Submission& submission) {
  SamplesSpec& samples = submission.spec.samples;
  if (samples.every == 0 || !samples.ids.empty()) return absl::OkStatus();
  StatusOr<Tokenized> tokenized =
      TokenizeFor(submission.spec, /*tokenizer=*/"", samples.prompts, /*chat=*/false);
  if (!tokenized.ok()) return Annotate(tokenized.status(), "samples.prompts");
  for (const std::vector<uint32_t>& ids : tokenized->ids) {
    if (!ids.empty() && ids.size() + samples.tokens <= submission.spec.model.context) continue;
    return InvalidArgument(
        "samples.prompts: expected prompts that with samples.tokens ({}) fill model.context ({}), "
        "got one of {} tokens",
        samples.tokens, submission.spec.model.context, ids.size());
  }
  samples.ids = std::move(tokenized->ids);
  samples.stop = std::move(tokenized->stop);
  submission.pieces = TokenPieces::Encode(tokenized->pieces);
  samples.pieces_sha256 = Sha256Hex(submission.pieces);
  submission.request.add_overrides(SectionOverride("samples", submission.spec));
  return absl::OkStatus();
}

// The steps in which a run reads its training data as often as train.epochs says.
uint64_t StepsOfEpochs(const RunSpec& spec, const Submission& submission) {
  uint64_t windows = 0;
  if (submission.mixture) {
    for (const data::SourceWindows& source :
         data::WindowsOfSources(*submission.mixture, spec.model.context, spec.validation.share)) {
      windows += source.training;
    }
  } else {
    // The tokenizer's arithmetic: a token of each byte, the end of the text for validation.
    const uint64_t bytes = TotalBytes(submission.request);
    const auto cut = static_cast<uint64_t>(static_cast<double>(bytes) * spec.validation.share);
    windows = WindowsOf(bytes - cut, spec.model.context);
  }
  const double sequences = *spec.train.epochs * static_cast<double>(windows);
  const uint64_t of_step = spec.TokensPerStep() / spec.model.context;
  return std::max<uint64_t>(
      1, static_cast<uint64_t>(std::ceil(sequences / static_cast<double>(of_step))));
}

StatusOr<Submission> Read(const std::string& text, const std::string& file,
                          const std::vector<std::string>& overrides, bool with_data) {
  Submission submission;
  submission.request.set_run_yaml(text);
  submission.request.set_file_name(file);
  FindTexts find_texts;
  if (with_data) {
    find_texts = [&](const RunSpec& spec) { return AddTexts(spec, submission); };
  }
  std::string folder;  // of the weights; may be an address
  const FindModel find_model = [&](const std::string& from) -> StatusOr<FoundModel> {
    if (!submission.weights) {  // the run file may be read twice
      LH_ASSIGN_OR_RETURN(
          ModelSource source,
          FindModelSource(from, std::filesystem::path(file).parent_path().string()));
      folder = std::move(source.from);
      submission.weights = std::move(source.weights);
    }
    LH_ASSIGN_OR_RETURN(const published::Config config,
                        published::ParseConfig(submission.weights->config_json, "config.json"));
    return FoundModel{.model = config.model,
                      .ranks = config.ranks.count,
                      .shared_channels = config.ranks.shared_channels};
  };
  std::string of_adapters;  // their folder
  const FindAdapters find_adapters = [&](const std::string& from,
                                         const ModelSpec& model) -> StatusOr<LoraSpec> {
    of_adapters = AbsolutePath(from, std::filesystem::path(file).parent_path().string());
    LH_ASSIGN_OR_RETURN(published::Adapters found, published::ReadAdapters(of_adapters, model));
    submission.adapters.emplace().tensors = std::move(found.tensors);
    return std::move(found.lora);
  };
  LH_ASSIGN_OR_RETURN(submission.spec,
                      ParseRunSpec(text, file, overrides, find_texts, find_model, find_adapters));
  const bool has_steps = submission.spec.train.steps < kMostSteps;
  if (with_data && submission.spec.train.epochs && !has_steps) {
    const std::string steps =
        fmt::format("train.steps={}", StepsOfEpochs(submission.spec, submission));
    std::vector<std::string> settled = overrides;
    settled.push_back(steps);
    LH_ASSIGN_OR_RETURN(submission.spec,
                        ParseRunSpec(text, file, settled, {}, find_model, find_adapters));
    submission.request.add_overrides(steps);
  }
  if (submission.weights && submission.mixture) {
    LH_RETURN_IF_ERROR(CheckTokenizers(*submission.mixture, *submission.weights, folder));
  }
  // Workers look there, too, whatever folder they run in.
  if (submission.weights) submission.spec.weights.from = folder;
  if (submission.adapters) submission.spec.weights.adapters = of_adapters;
  if (submission.mixture) FillInSets(submission);
  for (const std::string& text_override : overrides) {
    submission.request.add_overrides(text_override);
  }
  if (submission.mixture) {
    submission.request.add_overrides(SectionOverride("data", submission.spec));
    LH_RETURN_IF_ERROR(FillInSamples(submission));
  }
  return submission;
}

}  // namespace

StatusOr<Submission> ReadRunFile(const std::string& file,
                                 const std::vector<std::string>& overrides) {
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kLargestRunFile));
  return Read(text, file, overrides, /*with_data=*/false);
}

StatusOr<Submission> ReadRunAndData(const std::string& file,
                                    const std::vector<std::string>& overrides,
                                    const std::string& folder) {
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kLargestRunFile));
  const std::filesystem::path path(file);
  return ReadTextAndData(
      text, folder.empty() ? file : (std::filesystem::path(folder) / path.filename()).string(),
      overrides);
}

StatusOr<Submission> ReadTextAndData(const std::string& text, const std::string& file,
                                     const std::vector<std::string>& overrides) {
  return Read(text, file, overrides, /*with_data=*/true);
}

Status FindData(Submission& submission) {
  LH_ASSIGN_OR_RETURN(const uint64_t bytes, AddTexts(submission.spec, submission));
  // Every tokenizer makes at most one token of a byte.
  return CheckDataSize(submission.spec, bytes);
}

Status HashData(const Terminal& terminal, Interrupt& interrupt, Submission& submission) {
  Progress progress(terminal, "reading the data");
  const uint64_t total = TotalBytes(submission.request);
  uint64_t done = 0;
  for (size_t i = 0; i < submission.paths.size(); ++i) {
    Sha256 hash;
    uint64_t bytes = 0;
    LH_RETURN_IF_ERROR(ReadPieces(
        submission.paths[i], 0, kToTheEnd, [&](std::string_view piece) -> StatusOr<bool> {
          if (interrupt.fired()) {
            return absl::CancelledError("interrupted; nothing was submitted");
          }
          hash.Update(piece);
          bytes += piece.size();
          done += piece.size();
          progress.Bytes(done, total);
          return true;
        }));
    v1::DataFile* file = submission.request.mutable_data_files(static_cast<int>(i));
    file->set_sha256(hash.HexDigest());
    file->set_bytes(bytes);
  }
  return absl::OkStatus();
}

Status HashWeights(const Terminal& terminal, Interrupt& interrupt, Submission& submission) {
  if (!submission.weights) return absl::OkStatus();
  Progress progress(terminal, "reading the weights");
  uint64_t total = 0, before = 0;
  for (const auto* const weights : {&submission.weights, &submission.adapters}) {
    if (!*weights || !(*weights)->from.empty()) continue;
    for (const published::Tensor& tensor : (*weights)->tensors) total += tensor.bytes;
  }
  const auto hash = [&](const std::string& folder, published::Weights* weights) {
    uint64_t last = 0;
    const Status status = published::HashTensors(folder, weights, [&](uint64_t done) -> Status {
      if (interrupt.fired()) return absl::CancelledError("interrupted; nothing was submitted");
      last = done;
      progress.Bytes(before + done, total);
      return absl::OkStatus();
    });
    before += last;
    return status;
  };
  // Tensors at an address have a commit or ETags instead of hashes.
  if (submission.weights->from.empty()) {
    LH_RETURN_IF_ERROR(hash(submission.spec.weights.from, &*submission.weights));
  }
  published::Weights all = *submission.weights;
  if (submission.adapters) {
    LH_RETURN_IF_ERROR(hash(submission.spec.weights.adapters, &*submission.adapters));
    all.tensors.insert(all.tensors.end(), submission.adapters->tensors.begin(),
                       submission.adapters->tensors.end());
  }
  submission.weights_json = published::ToJson(all);
  submission.spec.weights.sha256 = Sha256Hex(submission.weights_json);
  DescribeModel(submission);
  return absl::OkStatus();
}

void DescribeModel(Submission& submission) {
  if (!submission.weights) return;
  submission.request.add_overrides(SectionOverride("model", submission.spec));
  if (!submission.adapters) return;
  submission.request.add_overrides(SectionOverride("train.lora", submission.spec));
}

namespace {

// Asking keeps those that are there for another day.
StatusOr<std::set<std::string>> Missing(Client& client, const std::vector<Upload>& uploads) {
  std::set<std::string> missing;
  for (size_t begin = 0; begin < uploads.size(); begin += kBlobsAsked) {
    v1::MissingBlobsRequest request;
    for (size_t i = begin; i < std::min(uploads.size(), begin + kBlobsAsked); ++i) {
      request.add_sha256(uploads[i].sha256);
    }
    LH_ASSIGN_OR_RETURN(const v1::MissingBlobsReply reply,
                        client.Get(&v1::ControlService::Stub::MissingBlobs, request));
    missing.insert(reply.sha256().begin(), reply.sha256().end());
  }
  return missing;
}

Status SendAll(Client& client, const std::vector<Upload>& uploads, std::set<std::string> missing,
               Progress* progress) {
  uint64_t total = 0;
  uint64_t done = 0;
  std::set<std::string> counted;
  for (const Upload& upload : uploads) {
    if (missing.contains(upload.sha256) && counted.insert(upload.sha256).second) {
      total += upload.bytes;
    }
  }
  for (const Upload& upload : uploads) {
    if (missing.erase(upload.sha256) == 0) continue;
    LH_RETURN_IF_ERROR(Send(client, upload, [&](uint64_t bytes) {
      done += bytes;
      progress->Bytes(done, total);
    }));
  }
  return absl::OkStatus();
}

}  // namespace

Status UploadData(const Terminal& terminal, Client& client, const Submission& submission) {
  const std::vector<Upload> uploads = UploadsOf(submission);
  // Something small first: the coordinator takes little from who has not shown the token yet.
  LH_RETURN_IF_ERROR(client.Get(&v1::ControlService::Stub::Info, v1::InfoRequest()).status());
  Progress progress(terminal, submission.weights_json.empty() ? "uploading the data" : "uploading");
  // What was sent first may be garbage again before a long upload is over.
  for (int round = 0; round < kMostUploadRounds; ++round) {
    LH_ASSIGN_OR_RETURN(std::set<std::string> missing, Missing(client, uploads));
    if (missing.empty()) return absl::OkStatus();
    LH_RETURN_IF_ERROR(SendAll(client, uploads, std::move(missing), &progress));
  }
  return Unavailable(
      "the coordinator does not keep what is uploaded: it was sent {} times, and some is "
      "missing again; look at its log and its disk",
      kMostUploadRounds);
}

}  // namespace longhaul::cli
