#include "base/remote/hub_upload.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/remote/foreign.h"
#include "base/remote/read.h"

namespace longhaul::remote {
namespace {

// How much of a file the hub looks at before it says how it wants the file.
constexpr size_t kSampleBytes = 512;
// Files that the hub is asked about in one request.
constexpr size_t kMostAtOnce = 256;

std::string Base64(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

class HubUpload {
 public:
  using Fields = nlohmann::json;

  HubUpload(const Tools& tools, const AskHub& ask, const Address& at, const FolderChange& change,
            const http::Call& call)
      : tools_(tools), ask_(ask), at_(at), change_(change), call_(call) {}

  StatusOr<std::string> Run() {
    std::string lines = Line("header", {{"summary", change_.summary}, {"description", ""}});
    const std::span<const NewFile> files(change_.files);
    for (const std::string& path : change_.removed) {
      const bool is_written = std::ranges::find(files, path, &NewFile::path) != files.end();
      if (!is_written) lines += Line("deletedFile", {{"path", path}});
    }
    for (size_t begin = 0; begin < files.size(); begin += kMostAtOnce) {
      const auto some = files.subspan(begin, std::min(kMostAtOnce, files.size() - begin));
      LH_ASSIGN_OR_RETURN(const auto is_large, Ask(some));
      for (const NewFile& file : some) {
        const auto mode = is_large.find(file.path);
        if (mode == is_large.end()) {
          return DataLoss("{}: the hub does not say how it wants {}", Doing(kWhat, at_), file.path);
        }
        LH_ASSIGN_OR_RETURN(const std::string line, Send(file, mode->second));
        lines += line;
      }
    }
    return Commit(lines);
  }

  // Asks the hub how it wants the files.
  StatusOr<std::map<std::string, bool>> Ask(std::span<const NewFile> files) const {
    Fields list = Fields::array();
    for (const NewFile& file : files) {
      list.push_back(
          {{"path", file.path},
           {"size", file.bytes.size()},
           {"sample", Base64(file.bytes.first(std::min(kSampleBytes, file.bytes.size())))}});
    }
    LH_ASSIGN_OR_RETURN(const std::string modes,
                        Post(Api("preupload"), "application/json", Fields{{"files", list}}.dump()));
    return Named(ParseUploadModes(modes));
  }

 private:
  std::string Api(std::string_view what) const {
    return fmt::format("{}/api/{}/{}/{}/{}", tools_.settings.endpoints.hub,
                       at_.kind == Kind::kHubDataset ? "datasets" : "models", at_.place, what,
                       Escaped(at_.revision, false));
  }

  Status Named(const Status& status) const { return Annotate(status, Doing(kWhat, at_)); }
  template <class Value>
  StatusOr<Value> Named(StatusOr<Value> value) const {
    if (!value.ok()) return Named(value.status());
    return value;
  }

  // Sends until it is answered by 2xx, and returns the answer.
  StatusOr<http::Answer> Send(const http::Request& request, const http::Call& call) const {
    StatusOr<http::Answer> answer;
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      answer = tools_.client.Send(request, call);
      if (!answer.ok() || answer->ok()) return answer.status();
      return ErrorOf(*answer, at_, kWhat);
    }));
    return answer;
  }

  // To the hub, with the user's token.
  StatusOr<std::string> Post(const std::string& url, const std::string& type,
                             const std::string& body) const {
    http::Request request = ask_("POST", url);
    request.headers = {"Content-Type: " + type, "Accept: " + type};
    request.body = std::as_bytes(std::span(body));
    LH_ASSIGN_OR_RETURN(http::Answer answer, Send(request, call_));
    return std::move(answer.body);
  }

  // To an address that the hub named, without the token.
  Status PostTo(const std::string& url, const std::vector<std::string>& headers,
                const Fields& fields) const {
    const std::string body = fields.dump();
    http::Request request{.method = "POST", .url = url, .secrets = headers};
    request.headers = {kLfsType, kLfsAccept};
    request.body = std::as_bytes(std::span(body));
    return Send(request, call_).status();
  }

  static std::string Line(std::string_view key, const Fields& value) {
    return Fields{{"key", key}, {"value", value}}.dump() + "\n";
  }

  // Returns the commit's line for the file, which is at the hub's store if it is large.
  StatusOr<std::string> Send(const NewFile& file, bool is_large) {
    if (!is_large) {
      Sent(file.bytes.size());
      return Line("file",
                  {{"path", file.path}, {"encoding", "base64"}, {"content", Base64(file.bytes)}});
    }
    Sha256 hash;
    hash.Update(file.bytes);
    const Large large{.sha256 = hash.HexDigest(), .bytes = file.bytes};
    LH_RETURN_IF_ERROR(SendLarge(large));
    return Line("lfsFile", {{"path", file.path},
                            {"algo", "sha256"},
                            {"oid", large.sha256},
                            {"size", large.bytes.size()}});
  }

  struct Large {
    std::string sha256;
    std::span<const std::byte> bytes;
  };

  Status SendLarge(const Large& large) {
    LH_ASSIGN_OR_RETURN(
        const std::string batch,
        Post(fmt::format("{}/{}{}.git/info/lfs/objects/batch", tools_.settings.endpoints.hub,
                         at_.kind == Kind::kHubDataset ? "datasets/" : "", at_.place),
             "application/vnd.git-lfs+json",
             Fields{{"operation", "upload"},
                    {"transfers", {"basic", "multipart"}},
                    {"hash_algo", "sha256"},
                    {"objects", {{{"oid", large.sha256}, {"size", large.bytes.size()}}}}}
                 .dump()));
    LH_ASSIGN_OR_RETURN(const LargeUpload upload,
                        Named(ParseLargeUpload(batch, large.bytes.size())));
    if (upload.url.empty()) {
      Sent(large.bytes.size());  // the hub has it
    } else {
      LH_RETURN_IF_ERROR(upload.part_urls.empty() ? SendWhole(large, upload)
                                                  : SendParts(large, upload));
    }
    if (upload.verify_url.empty()) return absl::OkStatus();
    return PostTo(upload.verify_url, upload.verify_headers,
                  {{"oid", large.sha256}, {"size", large.bytes.size()}});
  }

  Status SendWhole(const Large& large, const LargeUpload& upload) {
    LH_RETURN_IF_ERROR(
        Send({.method = "PUT", .url = upload.url, .secrets = upload.headers, .body = large.bytes},
             call_)
            .status());
    Sent(large.bytes.size());
    return absl::OkStatus();
  }

  Status SendParts(const Large& large, const LargeUpload& upload) {
    Fields parts = Fields::array();
    for (size_t i = 0; i < upload.part_urls.size(); ++i) {
      parts.push_back({{"partNumber", i + 1}, {"etag", ""}});
    }
    LH_RETURN_IF_ERROR(SideBySide(
        upload.part_urls.size(), tools_.options.parallel, call_,
        [&](uint64_t number, const http::Call& call) -> Status {
          const uint64_t begin = number * upload.part_bytes;
          const auto part =
              large.bytes.subspan(begin, std::min(upload.part_bytes, large.bytes.size() - begin));
          LH_ASSIGN_OR_RETURN(
              const http::Answer answer,
              Send({.method = "PUT", .url = upload.part_urls[number], .body = part}, call));
          parts[number]["etag"] = answer.Header("etag");
          Sent(part.size());
          return absl::OkStatus();
        }));
    return PostTo(upload.url, {}, {{"oid", large.sha256}, {"parts", parts}});
  }

  // On any thread.
  void Sent(uint64_t bytes) {
    const uint64_t all = sent_ += bytes;
    if (change_.progress) change_.progress(all);
  }

  // 412: another commit came to the branch at the same moment. The hub puts this one behind it when
  // it is sent again.
  StatusOr<std::string> Commit(const std::string& lines) const {
    http::Request request = ask_("POST", Api("commit"));
    request.headers = {"Content-Type: application/x-ndjson", "Accept: application/json"};
    request.body = std::as_bytes(std::span(lines));
    http::Answer answer;
    LH_RETURN_IF_ERROR(tools_.Repeat(call_, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(answer, tools_.client.Send(request, call_));
      if (answer.ok()) return absl::OkStatus();
      const Status error = ErrorOf(answer, at_, kWhat);
      if (answer.code != 412) return error;
      return absl::UnavailableError(
          fmt::format("{} (somebody else writes to this branch)", Message(error)));
    }));
    return Named(ParseHubCommit(answer.body));
  }

  static constexpr std::string_view kWhat = "cannot write";
  static constexpr const char* kLfsType = "Content-Type: application/vnd.git-lfs+json";
  static constexpr const char* kLfsAccept = "Accept: application/vnd.git-lfs+json";
  const Tools& tools_;
  const AskHub& ask_;
  const Address& at_;
  const FolderChange& change_;
  const http::Call& call_;
  std::atomic<uint64_t> sent_{0};
};

// What a hub says about a repository or a branch that it does not have.
bool Lacks(const http::Answer& answer, std::string_view code) {
  return answer.code == 404 && answer.Header("x-error-code") == code;
}

// Looks whether the hub takes commits, and makes what it lacks.
class HubPreparation {
 public:
  using Fields = nlohmann::json;

  HubPreparation(const Tools& tools, const AskHub& ask, const Address& folder,
                 const http::Call& call)
      : tools_(tools), ask_(ask), folder_(folder), call_(call) {}

  StatusOr<bool> Run() const {
    LH_ASSIGN_OR_RETURN(http::Answer answer, Probe());
    const bool makes = Lacks(answer, "RepoNotFound");
    if (makes) {
      LH_RETURN_IF_ERROR(MakeRepository());
      LH_ASSIGN_OR_RETURN(answer, Probe());
    }
    if (Lacks(answer, "RevisionNotFound")) {
      LH_ASSIGN_OR_RETURN(
          const http::Answer made,
          Post(fmt::format("{}/branch/{}", Repository(), Escaped(folder_.revision, false)),
               Fields::object()));
      if (!made.ok() && made.code != 409) return ErrorOf(made, folder_, "cannot make the branch");
      LH_ASSIGN_OR_RETURN(answer, Probe());
    }
    if (!answer.ok()) return ErrorOf(answer, folder_, "cannot write");
    return makes;
  }

 private:
  std::string Repository() const {
    return fmt::format("{}/api/{}/{}", tools_.settings.endpoints.hub,
                       folder_.kind == Kind::kHubDataset ? "datasets" : "models", folder_.place);
  }

  // The first request of a commit, which a hub refuses where it would refuse the commit. Nothing is
  // written.
  StatusOr<http::Answer> Probe() const {
    return Post(fmt::format("{}/preupload/{}", Repository(), Escaped(folder_.revision, false)),
                {{"files", {{{"path", "config.json"}, {"size", 2}, {"sample", "e30="}}}}});
  }

  Status MakeRepository() const {
    const size_t slash = folder_.place.find('/');
    Fields fields = {{"name", folder_.place.substr(slash + 1)},
                     {"organization", folder_.place.substr(0, slash)},
                     {"private", true}};
    if (folder_.kind == Kind::kHubDataset) fields["type"] = "dataset";
    LH_ASSIGN_OR_RETURN(const http::Answer made,
                        Post(tools_.settings.endpoints.hub + "/api/repos/create", fields));
    if (made.ok() || made.code == 409) return absl::OkStatus();
    const Status error = ErrorOf(made, folder_, "cannot make the repository");
    return {error.code(), fmt::format("{}; make it on the hub's page first", Message(error))};
  }

  // Returns any answer but those that may pass, which are asked for again.
  StatusOr<http::Answer> Post(const std::string& url, const Fields& fields) const {
    const std::string body = fields.dump();
    http::Request request = ask_("POST", url);
    request.headers = {"Content-Type: application/json", "Accept: application/json"};
    request.body = std::as_bytes(std::span(body));
    http::Answer answer;
    LH_RETURN_IF_ERROR(tools_.Repeat(call_, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(answer, tools_.client.Send(request, call_));
      if (answer.ok()) return absl::OkStatus();
      const Status error = ErrorOf(answer, folder_, "cannot write");
      return absl::IsUnavailable(error) ? error : absl::OkStatus();
    }));
    return answer;
  }

  const Tools& tools_;
  const AskHub& ask_;
  const Address& folder_;
  const http::Call& call_;
};

}  // namespace

StatusOr<std::string> WriteToHub(const Tools& tools, const AskHub& ask, const Address& at,
                                 const FolderChange& change, const http::Call& call) {
  return HubUpload(tools, ask, at, change, call).Run();
}

StatusOr<bool> PrepareHub(const Tools& tools, const AskHub& ask, const Address& folder,
                          const http::Call& call) {
  return HubPreparation(tools, ask, folder, call).Run();
}

}  // namespace longhaul::remote
