# SPDX-License-Identifier: Apache-2.0
# Targets format, lint and check.
