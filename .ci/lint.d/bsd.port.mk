# A stub of FreeBSD's bsd.port.mk: as much of it as lets the port's own recipe run on Linux, into a staging directory.
#
# Given on the command line: WRKSRC, the checkout; STAGEDIR; BINARIES, a directory with the built programs.

.include "${.CURDIR}/Makefile.crates"

PREFIX?=	/usr/local
ETCDIR?=	${PREFIX}/etc

MKDIR=		mkdir -p
MV=		mv
SH=		/bin/sh
STRIP_CMD=	strip
INSTALL_DATA=	install -m 0644
INSTALL_MAN=	install -m 0444
INSTALL_PROGRAM=	install -m 0555
INSTALL_SCRIPT=	install -m 0555

.for required in PORTNAME DISTVERSION CATEGORIES MAINTAINER COMMENT LICENSE USES CARGO_CRATES
.  if empty(${required})
.error ${required} is not set
.  endif
.endfor
.if !empty(IGNORE)
.error ${IGNORE}
.endif

stage: do-install post-install post-install-DOCS-on

# cargo install --path: the programs of each package, into bin.
do-install:
	${MKDIR} ${STAGEDIR}${PREFIX}/bin
.for path in ${CARGO_INSTALL_PATH}
	test -e ${WRKSRC}/${path}/Cargo.toml
	for source in ${WRKSRC}/${path}/src/bin/*.rs; do \
		[ ! -e "$$source" ] || ${INSTALL_PROGRAM} ${BINARIES}/$$(basename "$$source" .rs) ${STAGEDIR}${PREFIX}/bin/; \
	done
	[ ! -e ${WRKSRC}/${path}/src/main.rs ] || ${INSTALL_PROGRAM} ${BINARIES}/${path:T} ${STAGEDIR}${PREFIX}/bin/
.endfor

.PHONY: stage do-install post-install post-install-DOCS-on
