#include "proto/rpc/status.h"

#include <fmt/core.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "proto/rpc/channel.h"

namespace longhaul {

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(Message(status));
  if (message.size() > kMaxErrorBytes) {
    const size_t left_out = message.size() - kMaxErrorBytes;
    message.resize(kMaxErrorBytes);
    message += fmt::format("... ({} more bytes)", left_out);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

std::string WordsOf(const grpc::Status& status) {
  std::string words = status.error_message();
  // TLS says too little to whoever was away while the authority's key was rotated.
  if (absl::StrContains(absl::AsciiStrToLower(words), "certificate verify failed") ||
      absl::StrContains(words, "CERTIFICATE_VERIFY_FAILED")) {
    words +=
        " (the coordinator there has another authority than the one that this side joined: if the "
        "authority's key was rotated meanwhile, join again with a new join token, --token-file)";
  }
  return words;
}

Status FromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (what.empty()) return Status(code, WordsOf(status));
  return Status(code, fmt::format("{}: {}", what, WordsOf(status)));
}

}  // namespace longhaul
