// How this project's gRPC channels and servers are set up: credentials, keepalive, sizes.
#ifndef LONGHAUL_PROTO_RPC_CHANNEL_H_
#define LONGHAUL_PROTO_RPC_CHANNEL_H_

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

// The largest message that a client takes. A larger one ends the call with RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxMessageBytes = 4 << 20;
// The largest trace of a stage, which has thousands of spans. Other reports of workers are much
// smaller.
inline constexpr size_t kMaxTraceBytes = 512 << 10;
// The largest message that a server takes.
inline constexpr size_t kMaxRequestBytes = 2 << 20;
// Concurrent calls on one connection to a server; further calls wait.
inline constexpr int kMaxCallsPerConnection = 32;
// Bytes of a blob in one message (UploadChunk, BlobChunk).
inline constexpr size_t kChunkBytes = 1 << 20;
// The longest error text: room for every error of a run file, within the limit of metadata.
inline constexpr size_t kMaxErrorBytes = 16 << 10;

// TLS 1.3 alone, with the identity of a coordinator. Callers may show a certificate, which then has
// to be its authority's and valid by now.
std::shared_ptr<grpc::ServerCredentials> TlsServer(const ServerIdentity& identity);
// Without encryption: data links, and what --insecure asks for.
std::shared_ptr<grpc::ServerCredentials> PlainServer();
std::shared_ptr<grpc::ChannelCredentials> PlainClient();

// Sends gRPC's own messages ("No address added", ...) to the program's log at level debug: errors
// that matter come back as a Status. Call once, in main().
void RouteGrpcLog();

// Raises the limit of open files as far as the system allows: every connection is one. Call once,
// in main().
void RaiseFileLimit();

// How long one attempt to connect may take.
inline constexpr absl::Duration kConnectLimit = absl::Seconds(5);

// A channel with a connection of its own (not shared with other channels of the process), without
// proxies, reconnecting with back-off (0.2 s to 5 s) for as long as calls ask for it. A peer that
// vanished is noticed within 20 s. Never blocks. Without credentials: without encryption. With
// them: TLS to the coordinator of their authority and to nobody else, whatever its address is; the
// member's certificate is shown where there is one.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           absl::Duration connect_limit = kConnectLimit);
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials,
                                           absl::Duration connect_limit = kConnectLimit);

// Limits and keepalive of a server; its port is a GuardedPort (guarded_port.h).
void ConfigureServer(grpc::ServerBuilder* builder);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_RPC_CHANNEL_H_
