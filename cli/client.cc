#include "cli/client.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/address.h"
#include "base/log.h"
#include "base/units.h"
#include "proto/rpc/status.h"

namespace longhaul::cli {
namespace {

constexpr absl::Duration kJoinLimit = absl::Seconds(10);
// To say that it serves, for each of several coordinators. To connect it has less.
constexpr absl::Duration kReachLimit = absl::Seconds(10);

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

// With a local cluster the file is the cluster's, and goes with it.
std::string CredentialsFile(const std::string& address,
                            const std::optional<LocalCluster>& cluster) {
  if (std::string file = Environment("LONGHAUL_IDENTITY"); !file.empty()) return file;
  if (cluster) return cluster->credentials_file;
  std::string folder = Environment("LONGHAUL_HOME");
  if (folder.empty()) {
    const std::string config = Environment("XDG_CONFIG_HOME");
    folder = (config.empty() ? Environment("HOME") + "/.config" : config) + "/longhaul";
  }
  return fmt::format("{}/{}.pem", folder, address);
}

std::string UserName() {
  std::string name = Environment("USER");
  return name.empty() ? fmt::format("user-{}", ::geteuid()) : name;
}

}  // namespace

StatusOr<CoordinatorAccess> FindCoordinator(const ClientFlags& flags,
                                            const LocalClusters& clusters) {
  CoordinatorAccess access;
  std::string addresses = FlagOrVariable(flags.coordinator, "--coordinator", "LONGHAUL_COORDINATOR",
                                         &access.address_source);
  std::string token_file =
      FlagOrVariable(flags.token_file, "--token-file", "LONGHAUL_TOKEN_FILE", &access.token_source);
  access.insecure = flags.insecure || Environment("LONGHAUL_INSECURE") == "1";
  if (addresses.empty()) {
    const StatusOr<LocalCluster> cluster = clusters.find();
    if (!cluster.ok()) {
      return FailedPrecondition(
          "no coordinator is known: {}, or give --coordinator HOST:PORT, or set "
          "LONGHAUL_COORDINATOR",
          Message(cluster.status()));
    }
    addresses = cluster->address;
    access.insecure |= cluster->insecure;
    access.address_source = fmt::format("the local cluster '{}'", cluster->name);
    if (token_file.empty()) {
      token_file = cluster->token_file;
      access.token_source = access.address_source;
    }
  }
  StatusOr<std::vector<std::string>> parsed = ParseAddressList(addresses);
  if (!parsed.ok()) return Annotate(parsed.status(), access.address_source);
  access.addresses = *std::move(parsed);
  if (!token_file.empty()) {
    access.token_source = fmt::format("{} (from {})", token_file, access.token_source);
  }
  access.token_file = std::move(token_file);
  const std::optional<LocalCluster> cluster = clusters.at(access.addresses.front());
  access.credentials_file = CredentialsFile(access.addresses.front(), cluster);
  if (cluster) access.local_cluster = cluster->name;
  return access;
}

StatusOr<std::unique_ptr<Client>> Client::Open(CoordinatorAccess access, Interrupt& interrupt) {
  const AccessOptions options{.addresses = access.addresses,
                              .token_file = access.token_file,
                              .credentials_file = access.credentials_file,
                              .insecure = access.insecure,
                              .name = UserName()};
  StatusOr<std::shared_ptr<Access>> opened = Access::Open(options, kJoinLimit);
  if (!opened.ok()) {
    if (!absl::IsUnavailable(opened.status()) && !absl::IsUnauthenticated(opened.status())) {
      return opened.status();
    }
    const bool alone = access.addresses.size() == 1;
    return Explain(access, alone ? access.addresses.front() : "", ToGrpc(opened.status()),
                   kJoinLimit);
  }
  // The old certificate serves until it ends; then the next Open says so.
  if (const Status renewed = (*opened)->RenewIfDue(absl::ZeroDuration()); !renewed.ok()) {
    LogDebug("{}", Message(renewed));
  }
  std::unique_ptr<Client> client(new Client(std::move(access), *std::move(opened), interrupt));
  LH_RETURN_IF_ERROR(client->Reach());
  return client;
}

Client::Client(CoordinatorAccess access, std::shared_ptr<Access> opened, Interrupt& interrupt)
    : access_(std::move(access)), opened_(std::move(opened)), interrupt_(interrupt) {
  Dial();
}

void Client::Dial() {
  const Access::Connection dialled = opened_->Dial();
  generation_ = dialled.generation;
  channel_ = dialled.channel;
  stubs_ = {v1::ControlService::NewStub(channel_), v1::MemberService::NewStub(channel_),
            v1::ObserveService::NewStub(channel_), v1::SeatService::NewStub(channel_)};
}

Status Client::Reach() {
  if (reached_ || alone()) return absl::OkStatus();
  Status found = opened_->AskEach([this](const std::string& address) -> Status {
    Dial();
    grpc::ClientContext context;
    opened_->Prepare(&context, /*wait=*/false);
    context.set_deadline(absl::ToChronoTime(absl::Now() + kReachLimit));
    const Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
    v1::InfoReply reply;
    const grpc::Status status = stub().Info(&context, v1::InfoRequest(), &reply);
    if (interrupt_.fired()) return absl::CancelledError("interrupted");
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return Unavailable("no answer from {} within {}", address,
                         longhaul::FormatDuration(kReachLimit));
    }
    // Whatever else it says, it says to the call that follows, too.
    return status.error_code() == grpc::StatusCode::UNAVAILABLE ? FromGrpc(status)
                                                                : absl::OkStatus();
  });
  if (absl::IsUnavailable(found)) return Explain(access_, "", ToGrpc(found), kReachLimit);
  reached_ = found.ok();
  return found;
}

void Client::AwaitConnection(absl::Duration limit) {
  if (!alone()) return;
  (void)channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + limit));
}

Status Client::Call(absl::Duration limit,
                    const std::function<grpc::Status(grpc::ClientContext& context)>& call) {
  LH_RETURN_IF_ERROR(Reach());
  grpc::ClientContext context;
  opened_->Prepare(&context, /*wait=*/false);
  if (limit != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  }
  const Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
  const grpc::Status status = call(context);
  if (status.ok()) LearnAuthority(context);
  if (!status.ok() && interrupt_.fired()) return absl::CancelledError("interrupted");
  Status explained = Explain(access_, address(), status, limit);
  if (absl::IsUnavailable(explained)) {
    opened_->GoOnFrom(generation_);
    reached_ = false;
  }
  return explained;
}

// While the authority's key is rotated, whoever calls learns the new one, and needs not join again
// when the old one has ended.
void Client::LearnAuthority(const grpc::ClientContext& context) {
  opened_->NoteAuthority(context);
  if (const Status renewed = opened_->RenewIfDue(absl::Minutes(1)); !renewed.ok()) {
    LogDebug("{}", Message(renewed));
  }
}

Status Client::Explain(const CoordinatorAccess& access, const std::string& address,
                       const grpc::Status& status, absl::Duration limit) {
  const std::string where =
      address.empty()
          ? fmt::format("any coordinator of {} (from {})", absl::StrJoin(access.addresses, ", "),
                        access.address_source)
          : fmt::format("the coordinator at {} (from {})", address, access.address_source);
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return Unavailable(
          "cannot reach {}: {}. Check that longhaul-coordinator runs there, {}that the "
          "address is right and that no firewall closes the port.",
          where, WordsOf(status),
          access.insecure ? "that it was started with --insecure, too, " : "");
    case grpc::StatusCode::PERMISSION_DENIED:
      return PermissionDenied("{} refused: {}", where, status.error_message());
    case grpc::StatusCode::UNAUTHENTICATED:
      if (!access.insecure) {
        return Unauthenticated(
            "{} refused this user or was refused: {}. The certificate is in {}; to join anew, "
            "remove that file and give a join token with --token-file.",
            where, status.error_message(), access.credentials_file);
      }
      return Unauthenticated(
          "{} refused {}: {}. Check that --token-file or LONGHAUL_TOKEN_FILE names a "
          "copy of the coordinator's token file.",
          where,
          access.token_file.empty() ? "a call without a token"
                                    : "the token of " + access.token_source,
          status.error_message());
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return DeadlineExceeded(
          "no answer from {} within {}. Check that it is not overloaded or stopped and "
          "that the network between is up.",
          where, longhaul::FormatDuration(limit));
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
