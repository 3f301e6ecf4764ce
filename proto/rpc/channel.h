// Settings of this project's gRPC channels and servers: credentials, keepalive, sizes. Functions
// cannot fail, and are thread-safe unless they are for main().
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"

namespace longhaul {

// Largest message that a client accepts. A larger message ends the call with RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxMessageBytes = 4 << 20;
// Largest trace of a stage (its times of computing and sending) in a worker's report to the
// coordinator. A trace has thousands of spans; other reports are much smaller.
inline constexpr size_t kMaxTraceBytes = 512 << 10;
// Largest message that a server accepts.
inline constexpr size_t kMaxRequestBytes = 2 << 20;
// Maximum of concurrent calls on one connection to a server; further calls wait.
inline constexpr int kMaxCallsPerConnection = 32;
// Bytes of a blob, a file in the coordinator's store, in one message (UploadChunk, BlobChunk).
inline constexpr size_t kChunkBytes = 1 << 20;
// Longest error text: enough for every error of a run file, within gRPC's limit on metadata.
inline constexpr size_t kMaxErrorBytes = 16 << 10;

// Returns credentials of a coordinator with this identity, for TLS 1.3 only. A caller need not
// present a certificate. If a caller presents one, it must be valid and signed by the authority.
std::shared_ptr<grpc::ServerCredentials> TlsServer(const ServerIdentity& identity);
// Return credentials without encryption, for data links and --insecure.
std::shared_ptr<grpc::ServerCredentials> PlainServer();
std::shared_ptr<grpc::ChannelCredentials> PlainClient();

// Sends gRPC's own messages ("No address added", ...) to the log at level debug; important errors
// come back as a Status. Call RouteGrpcLog once, in main().
void RouteGrpcLog();

// Raises the process's soft limit of open files to the hard limit, because every connection needs a
// descriptor. Call RaiseFileLimit once, in main(). A failure is only logged.
void RaiseFileLimit();

// Time limit of one attempt to connect.
inline constexpr absl::Duration kConnectLimit = absl::Seconds(5);

// Make a channel to `address` (host:port) with its own connection, not shared in the process and
// without proxies. The channel reconnects with back-off (0.2 s to 5 s) as long as calls need it,
// and notices a vanished peer within 20 s. Never block. Without credentials there is no encryption.
// If `credentials` are given, the channel uses TLS. It accepts only a coordinator whose certificate
// is signed by the authority of the credentials, and does not compare the coordinator's address
// with the certificate. It presents the member's certificate if the credentials have one.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           absl::Duration connect_limit = kConnectLimit);
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials,
                                           absl::Duration connect_limit = kConnectLimit);

// Sets limits and keepalive of a server whose port is a GuardedPort (guarded_port.h). Uses
// `builder` during this call only.
void ConfigureServer(grpc::ServerBuilder* builder);

}  // namespace longhaul
