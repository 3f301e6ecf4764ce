#include "proto/rpc/status.h"

#include <fmt/core.h>

#include <string>

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

Status FromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (what.empty()) return Status(code, status.error_message());
  return Status(code, fmt::format("{}: {}", what, status.error_message()));
}

}  // namespace longhaul
