#include "proto/rpc/auth.h"

#include <fmt/core.h>

#include "base/address.h"
#include "base/hash.h"
#include "proto/rpc/listener.h"

namespace longhaul {
namespace {

constexpr char kKey[] = "authorization";
constexpr std::string_view kScheme = "Bearer ";

}  // namespace

void AddToken(grpc::ClientContext* context, std::string_view token) {
  if (!token.empty()) context->AddMetadata(kKey, fmt::format("{}{}", kScheme, token));
}

std::string PeerHost(const grpc::ServerContextBase& context) {
  const std::string peer = PeerText(context.peer());
  const StatusOr<HostPort> address = ParseHostPort(peer);
  return address.ok() ? address->host : peer;
}

Status CheckToken(const grpc::ServerContextBase& context, std::string_view token) {
  if (token.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kKey);
  if (found == metadata.end()) {
    return absl::UnauthenticatedError(
        "this coordinator expects a token and the call carries none; give the coordinator's token "
        "file with --token-file");
  }
  const std::string_view value(found->second.data(), found->second.size());
  if (!value.starts_with(kScheme) || !ConstantTimeEqual(value.substr(kScheme.size()), token)) {
    return absl::UnauthenticatedError(
        "the token is not this coordinator's; give a copy of the coordinator's token file with "
        "--token-file");
  }
  return absl::OkStatus();
}

}  // namespace longhaul
