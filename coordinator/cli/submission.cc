#include "coordinator/cli/submission.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "codec/registry.h"
#include "coordinator/cli/progress.h"
#include "proto/rpc/channel.h"

namespace longhaul::cli {
namespace {

constexpr uint64_t kLargestRunFile = 1 << 20;

// Reads a file in pieces of kChunkBytes; `each` says whether to go on.
Status ReadPieces(const std::string& path,
                  const std::function<StatusOr<bool>(std::string_view piece)>& each) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return FromErrno("cannot read " + path, errno);
  std::string buffer(kChunkBytes, '\0');
  while (true) {
    const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (std::ferror(file.get()) != 0) return FromErrno("cannot read " + path, errno);
    if (bytes == 0) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(const bool go_on, each(std::string_view(buffer.data(), bytes)));
    if (!go_on) return absl::OkStatus();
  }
}

uint64_t TotalBytes(const v1::SubmitRequest& request) {
  uint64_t bytes = 0;
  for (const v1::DataFile& file : request.data_files()) bytes += file.bytes();
  return bytes;
}

Status UploadFile(Client& client, const v1::DataFile& file, const std::string& path,
                  const std::function<void(uint64_t bytes)>& sent) {
  Status reading;
  const Status sending =
      client.Call(absl::InfiniteDuration(), [&](grpc::ClientContext& context) -> grpc::Status {
        v1::UploadReply reply;
        const auto writer = client.stub().UploadBlob(&context, &reply);
        v1::UploadChunk chunk;
        chunk.set_sha256(file.sha256());
        chunk.set_total_bytes(file.bytes());
        bool open = true;
        if (file.bytes() == 0) open = writer->Write(chunk);
        reading = ReadPieces(path, [&](std::string_view piece) -> StatusOr<bool> {
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
  return Annotate(sending, "uploading " + path);
}

// Adds the data files that `spec` names to the submission, and says how many bytes they have.
StatusOr<uint64_t> AddTexts(const RunSpec& spec, Submission& submission) {
  const std::string folder =
      std::filesystem::path(submission.request.file_name()).parent_path().string();
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

StatusOr<Submission> Read(const std::string& file, const std::vector<std::string>& overrides,
                          bool with_data) {
  Submission submission;
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kLargestRunFile));
  submission.request.set_run_yaml(text);
  submission.request.set_file_name(file);
  FindTexts find_texts;
  if (with_data) {
    find_texts = [&](const RunSpec& spec) { return AddTexts(spec, submission); };
  }
  LH_ASSIGN_OR_RETURN(submission.spec,
                      ParseRunSpec(text, file, overrides, codec::CheckCodec, find_texts));
  for (const std::string& text_override : overrides) {
    submission.request.add_overrides(text_override);
  }
  return submission;
}

}  // namespace

StatusOr<Submission> ReadRunFile(const std::string& file,
                                 const std::vector<std::string>& overrides) {
  return Read(file, overrides, /*with_data=*/false);
}

StatusOr<Submission> ReadRunAndData(const std::string& file,
                                    const std::vector<std::string>& overrides) {
  return Read(file, overrides, /*with_data=*/true);
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
    LH_RETURN_IF_ERROR(
        ReadPieces(submission.paths[i], [&](std::string_view piece) -> StatusOr<bool> {
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

Status UploadData(const Terminal& terminal, Client& client, const Submission& submission) {
  v1::MissingBlobsRequest request;
  for (const v1::DataFile& file : submission.request.data_files()) {
    request.add_sha256(file.sha256());
  }
  // Something small first: the coordinator takes little from who has not shown the token yet.
  LH_RETURN_IF_ERROR(client.Get(&v1::ControlService::Stub::Info, v1::InfoRequest()).status());
  LH_ASSIGN_OR_RETURN(const v1::MissingBlobsReply reply,
                      client.Get(&v1::ControlService::Stub::MissingBlobs, request));
  std::set<std::string> missing(reply.sha256().begin(), reply.sha256().end());
  uint64_t total = 0;
  uint64_t done = 0;
  std::set<std::string> counted;
  for (const v1::DataFile& file : submission.request.data_files()) {
    if (missing.contains(file.sha256()) && counted.insert(file.sha256()).second) {
      total += file.bytes();
    }
  }
  Progress progress(terminal, "uploading the data");
  for (size_t i = 0; i < submission.paths.size(); ++i) {
    const v1::DataFile& file = submission.request.data_files(static_cast<int>(i));
    if (missing.erase(file.sha256()) == 0) continue;
    LH_RETURN_IF_ERROR(UploadFile(client, file, submission.paths[i], [&](uint64_t bytes) {
      done += bytes;
      progress.Bytes(done, total);
    }));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::cli
