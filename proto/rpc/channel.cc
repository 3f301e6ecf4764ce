#include "proto/rpc/channel.h"

#include <fmt/core.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/peer_log.h"

namespace longhaul {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kMetadataBytes = 64 << 10;        // room for kMaxErrorBytes, escaped
constexpr int kRequestMetadataBytes = 8 << 10;  // room for a token of kMaxTokenBytes
constexpr int kMessageBytes = static_cast<int>(kMaxMessageBytes);

// gRPC 1.51 takes TLS 1.2 too and has no setting for that. Of TLS 1.2's ciphers it is left one that
// needs a key known beforehand, which nobody has, so that no handshake of TLS 1.2 comes to an end.
void LeaveOutOldTls() {
  static const bool done = ::setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES256-GCM-SHA384", 1) == 0;
  LH_CHECK(done, "the environment cannot be changed");
}

grpc::ChannelArguments Arguments(absl::Duration connect_limit) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytes);
  arguments.SetMaxSendMessageSize(kMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // The name misleads: how long one attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(connect_limit)));
  if (connect_limit < kConnectLimit) {
    // Who has little time has no more for names. gRPC's own limit is two minutes.
    arguments.SetInt(GRPC_ARG_DNS_ARES_QUERY_TIMEOUT_MS,
                     static_cast<int>(absl::ToInt64Milliseconds(connect_limit)));
  }
  // Short, so that many workers are back soon after their coordinator is.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsServer(const ServerIdentity& identity) {
  LeaveOutOldTls();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = identity.authority_pem;
  options.pem_key_cert_pairs.push_back({identity.key_pem, identity.chain_pem});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> PlainServer() {
  return grpc::InsecureServerCredentials();
}

std::shared_ptr<grpc::ChannelCredentials> PlainClient() {
  return grpc::InsecureChannelCredentials();
}

void RouteGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* entry) {
    LogAboutPeer(LogLevel::kDebug, "gRPC", fmt::format("gRPC: {}", entry->message));
  });
}

void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    LogDebug("the limit of open files stays as it is: {}", std::strerror(errno));
  }
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           absl::Duration connect_limit) {
  return grpc::CreateCustomChannel(address, PlainClient(), Arguments(connect_limit));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials,
                                           absl::Duration connect_limit) {
  LeaveOutOldTls();
  grpc::ChannelArguments arguments = Arguments(connect_limit);
  arguments.SetSslTargetNameOverride(kCoordinatorName);
  grpc::SslCredentialsOptions options{
      .pem_root_certs = credentials.authority_pem, .pem_private_key = {}, .pem_cert_chain = {}};
  if (credentials.joined()) {
    options.pem_private_key = credentials.key_pem;
    options.pem_cert_chain = credentials.certificate_pem;
  }
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

void ConfigureServer(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(kMaxRequestBytes));
  builder->SetMaxSendMessageSize(kMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kRequestMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Without this a server takes the clients' keepalive pings for an attack and disconnects them.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kKeepaliveMs / 2);
}

}  // namespace longhaul
