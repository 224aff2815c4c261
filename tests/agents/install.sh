#!/bin/sh
# Installs the agents into target/agents, in the versions that were tried last.
set -eu
cd "$(dirname "$0")/../.."
exec npm install --prefix target/agents --no-audit --no-fund --loglevel=error \
	@anthropic-ai/claude-code@2.1.197 \
	@openai/codex@0.169.0 \
	@google/gemini-cli@0.61.0 \
	opencode-ai@1.18.33
