{{- define "helixweb.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "helixweb.labels" -}}
app.kubernetes.io/name: helixweb
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "helixweb.selector" -}}
app.kubernetes.io/name: helixweb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "helixweb.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "helixweb.agentImage" -}}
{{ .Values.agentImage.repository }}:{{ .Values.agentImage.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "helixweb.secret" -}}
{{ .Values.existingSecret | default (include "helixweb.name" .) }}
{{- end }}

{{- define "helixweb.environment" -}}
- name: HELIX_URL
  value: {{ .Values.url | quote }}
- name: HELIX_BEHIND_PROXY
  value: "1"
- name: HELIX_HOSTS
  value: {{ include "helixweb.name" . }}-web
- name: SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ include "helixweb.secret" . }}, key: secret-key}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "helixweb.secret" . }}, key: database-url}}
- name: REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "helixweb.secret" . }}, key: redis-url}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "helixweb.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "helixweb.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "helixweb.join" -}}
if grep -qs '"credential"' "$STATE/identity.json"; then : > /join/token; exit 0; fi
helixweb node token --cluster "$CLUSTER" --role "$ROLE" --json \
  | python -c 'import json, sys; print(json.load(sys.stdin)["secret"])' > /join/token
{{- end }}
