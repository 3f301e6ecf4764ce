#include "coordinator/hooks/hook_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/remote/open.h"
#include "coordinator/hooks/program.h"
#include "run/exporting/export_run.h"

namespace longhaul::coordinator {
namespace {

// Hooks that run at the same time, each of another run.
constexpr size_t kThreads = 4;
// Requests to the server of the weights with which a run began.
constexpr int kAttempts = 8;

// Names of files in the folder of one hook.
constexpr std::string_view kExport = "export";

std::string SecuredPath(const std::string& folder, const std::string& sha256) {
  return fmt::format("{}/{}", folder, sha256);
}

// The files of parameters that Secure has put aside, and blobs of the coordinator.
class OwnSource : public exporting::ExportSource {
 public:
  OwnSource(std::string folder, const BlobStore* blobs)
      : folder_(std::move(folder)), blobs_(blobs) {}

  Status Fetch(const std::string& sha256, const std::string& path) override {
    if (!IsSha256Hex(sha256)) return NotFound("'{}' names no blob", sha256);
    if (std::rename(SecuredPath(folder_, sha256).c_str(), path.c_str()) == 0) {
      return absl::OkStatus();
    }
    const std::string blob = blobs_->PathOf(sha256);
    if (::link(blob.c_str(), path.c_str()) == 0) return absl::OkStatus();
    return FromErrno(fmt::format("the coordinator's blob {}", sha256), errno);
  }

  StatusOr<std::unique_ptr<remote::Store>> OpenStore(const remote::Address& address) override {
    return remote::OpenForPerson(address, kAttempts);
  }

 private:
  const std::string folder_;
  const BlobStore* const blobs_;
};

event::HookEnded Failed(const command::RunHook& request, const Status& why) {
  return {.run = request.run,
          .step = request.step,
          .how = fmt::format("could not run: {}", Message(why))};
}

}  // namespace

HookRunner::HookRunner(std::string folder, const BlobStore* blobs, const BlobStore* copies,
                       std::function<void(Event)> done)
    : folder_(std::move(folder)),
      blobs_(blobs),
      copies_(copies),
      done_(std::move(done)),
      threads_(kThreads) {}

HookRunner::~HookRunner() {
  Stop(Deadline::After(absl::ZeroDuration()));
}

bool HookRunner::Stop(Deadline deadline) {
  stopping_ = true;
  return threads_.Stop(deadline);
}

void HookRunner::Add(command::RunHook request) {
  StatusOr<std::string> folder = Secure(request);
  if (!folder.ok()) {
    done_(Failed(request, folder.status()));
    return;
  }
  const std::string key(request.run.value());
  const auto clean = [at = *folder] {
    std::error_code error;
    std::filesystem::remove_all(at, error);
    if (error) LogWarning("the export for a hook stays in {}: {}", at, error.message());
  };
  threads_.Add(
      key,
      [this, request = std::move(request), at = *folder, clean] {
        event::HookEnded ended = Run(request, at);
        clean();
        if (!stopping_) done_(std::move(ended));
      },
      clean);
}

StatusOr<std::string> HookRunner::Secure(const command::RunHook& request) {
  if (folder_.empty()) return absl::FailedPreconditionError("there is no folder for exports");
  std::error_code error;
  if (!is_clean_) std::filesystem::remove_all(folder_, error);
  if (error) return FromErrno(fmt::format("cannot empty {}", folder_), error.value());
  is_clean_ = true;
  const std::string folder =
      std::filesystem::absolute(fmt::format("{}/{}", folder_, RandomUuid()), error);
  if (error) return FromErrno(folder_, error.value());
  LH_RETURN_IF_ERROR(MakeDirectories(fmt::format("{}/{}", folder, kExport)));
  for (const v1::CheckpointFile& file : request.files) {
    if (!IsSha256Hex(file.sha256())) return DataLoss("{} has no hash", file.name());
    const std::string copy = copies_->PathOf(file.sha256());
    // Two stages may have files that are alike.
    if (::link(copy.c_str(), SecuredPath(folder, file.sha256()).c_str()) == 0 || errno == EEXIST) {
      continue;
    }
    const Status status =
        FromErrno(fmt::format("the coordinator's copy of {}", file.name()), errno);
    std::filesystem::remove_all(folder, error);
    return status;
  }
  return folder;
}

event::HookEnded HookRunner::Run(const command::RunHook& request, const std::string& folder) const {
  exporting::ExportOrder order{
      .spec = request.spec, .vocabulary = request.vocabulary, .merged = request.spec.hooks.merged};
  for (const v1::CheckpointFile& file : request.files) order.parameters.push_back(file.sha256());
  const std::string path = fmt::format("{}/{}", folder, kExport);
  OwnSource source(folder, blobs_);
  StatusOr<exporting::WrittenExport> written = absl::UnknownError("not written");
  try {
    written = exporting::WriteExport(order, source, path);
  } catch (const std::exception& error) {
    written = FromException("writing the export for a hook", error);
  }
  if (!written.ok()) return Failed(request, written.status());
  for (const std::string& note : written->notes)
    LogInfo("hook of {}: {}", request.run.value(), note);
  const ProgramEnd end = RunProgram(
      {.arguments = request.spec.hooks.on_checkpoint,
       .environment = SmallEnvironment({fmt::format("LONGHAUL_EXPORT={}", path),
                                        fmt::format("LONGHAUL_RUN={}", request.run.value()),
                                        fmt::format("LONGHAUL_STEP={}", request.step)}),
       .folder = path,
       .limit = request.spec.hooks.timeout},
      [this] { return stopping_.load(); });
  return {
      .run = request.run, .step = request.step, .ok = end.ok, .how = end.how, .output = end.output};
}

}  // namespace longhaul::coordinator
