#include "coordinator/cli/client.h"

#include <fmt/core.h>

#include <cstdlib>
#include <utility>

#include "base/token.h"
#include "base/units.h"
#include "deploy/cluster/state_file.h"
#include "proto/rpc/address.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The flag, else the variable; where it came from goes to `source`.
std::string FlagOrVariable(const std::string& flag, const char* flag_name, const char* variable,
                           std::string* source) {
  if (!flag.empty()) {
    *source = flag_name;
    return flag;
  }
  std::string value = Environment(variable);
  if (!value.empty()) *source = variable;
  return value;
}

}  // namespace

StatusOr<CoordinatorAccess> FindCoordinator(const ClientFlags& flags) {
  CoordinatorAccess access;
  access.address = FlagOrVariable(flags.coordinator, "--coordinator", "LONGHAUL_COORDINATOR",
                                  &access.address_source);
  std::string token_file =
      FlagOrVariable(flags.token_file, "--token-file", "LONGHAUL_TOKEN_FILE", &access.token_source);
  if (access.address.empty()) {
    const StatusOr<ClusterState> cluster = ReadClusterState();
    if (!cluster.ok()) {
      return absl::FailedPreconditionError(
          fmt::format("no coordinator is known: {}, or give --coordinator HOST:PORT, or set "
                      "LONGHAUL_COORDINATOR",
                      Message(cluster.status())));
    }
    access.address = cluster->coordinator_address;
    access.address_source = fmt::format("the local cluster '{}'", cluster->name);
    if (token_file.empty()) {
      token_file = cluster->token_file;
      access.token_source = access.address_source;
    }
  }
  const StatusOr<HostPort> address = ParseHostPort(access.address);
  if (!address.ok()) {
    return Annotate(address.status(), access.address_source);
  }
  if (!token_file.empty()) {
    LH_ASSIGN_OR_RETURN(access.token, LoadToken(token_file));
    access.token_source = fmt::format("{} (from {})", token_file, access.token_source);
  }
  return access;
}

Client::Client(CoordinatorAccess access, Interrupt& interrupt)
    : access_(std::move(access)),
      interrupt_(interrupt),
      stub_(v1::ControlService::NewStub(MakeChannel(access_.address))) {}

Status Client::Call(absl::Duration limit,
                    const std::function<grpc::Status(grpc::ClientContext& context)>& call) {
  grpc::ClientContext context;
  AddToken(&context, access_.token);
  if (limit != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  }
  const Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
  const grpc::Status status = call(context);
  if (!status.ok() && interrupt_.fired()) return absl::CancelledError("interrupted");
  return Explain(status, limit);
}

Status Client::Explain(const grpc::Status& status, absl::Duration limit) const {
  const std::string where =
      fmt::format("the coordinator at {} (from {})", access_.address, access_.address_source);
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(
          fmt::format("cannot reach {}: {}. Check that longhaul-coordinator runs there, that the "
                      "address is right and that no firewall closes the port.",
                      where, status.error_message()));
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return Status(
          static_cast<absl::StatusCode>(status.error_code()),
          fmt::format("{} refused {}: {}. Check that --token-file or LONGHAUL_TOKEN_FILE names a "
                      "copy of the coordinator's token file.",
                      where,
                      access_.token.empty() ? "a call without a token"
                                            : "the token of " + access_.token_source,
                      status.error_message()));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(
          fmt::format("no answer from {} within {}. Check that it is not overloaded or stopped and "
                      "that the network between is up.",
                      where, longhaul::FormatDuration(limit)));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(
          fmt::format("{} does not know this call; it is another version of longhaul, or no "
                      "longhaul-coordinator at all: {}",
                      where, status.error_message()));
    default:
      return FromGrpc(status);
  }
}

}  // namespace longhaul::cli
