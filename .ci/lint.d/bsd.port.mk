# A stub of FreeBSD's bsd.port.mk: as much of it as lets the port's own recipe run on Linux, into a staging directory.
#
# Given on the command line: WRKSRC, the checkout; STAGEDIR; WRKDIR, for files that are made from files/*.in; BINARIES, a
# directory with the built programs; COMPLETER, a colibri-mcp that runs here, if those do not; WITHOUT, options that are
# off.

.include "${.CURDIR}/Makefile.crates"

PREFIX?=	/usr/local
ETCDIR?=	${PREFIX}/etc/${PORTNAME}
FILESDIR=	${.CURDIR}/files

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

stage: apply-slist do-install post-install
.for option in ${OPTIONS_DEFINE}
.  if empty(WITHOUT:M${option})
stage: post-install-${option}-on
.  endif
.endfor
stage: install-rc-script

# files/NAME.in becomes NAME, with what stands between %% replaced.
apply-slist:
	@${MKDIR} ${WRKDIR}
.for file in ${SUB_FILES} ${USE_RC_SUBR}
	sed -e 's|%%PREFIX%%|${PREFIX}|g' -e 's|%%ETCDIR%%|${ETCDIR}|g' ${FILESDIR}/${file}.in >${WRKDIR}/${file}
	! grep '%%' ${WRKDIR}/${file}
.endfor

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

# USE_RC_SUBR: installed and listed by the framework.
install-rc-script:
	@${MKDIR} ${STAGEDIR}${PREFIX}/etc/rc.d
.for file in ${USE_RC_SUBR}
	${INSTALL_SCRIPT} ${WRKDIR}/${file} ${STAGEDIR}${PREFIX}/etc/rc.d/
.endfor

.PHONY: stage apply-slist do-install post-install install-rc-script ${OPTIONS_DEFINE:S/^/post-install-/:S/$/-on/}
